"""One `generate` call: decode every live row, let completions join, draw for all of them at once, let ended ones leave.

Everything that grows with the batch or the tokens is a tensor operation; Python runs once per step. The one
synchronisation per step asks whether any row drew an end-of-sequence id.

Letters: N completions, T most tokens of a completion, R rows, n live rows, V vocabulary, D hidden size.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.engine.base import Completion, GroupRequest, SamplingParams, StateSink
from farflung.engine.forward import MIN_BATCH_ROWS
from farflung.engine.noise_ahead import NoiseAhead
from farflung.engine.outputs import Outputs
from farflung.engine.plan import Joining, Plan
from farflung.engine.rows import Prompts, Rows
from farflung.model.head import next_token_logits, vocabulary_mask
from farflung.proofs.draws import draw, position_keys
from farflung.slots.noise import row_keys

MAX_PREFILL_TOKENS = 1024
"""Most prompt tokens of one forward, so that its activations stay in cache; a longer prompt goes alone."""


class Run:
    """State of one call. `step` until it returns False, then `completions`."""

    def __init__(
        self,
        rows: Rows,
        requests: Sequence[GroupRequest],
        params: SamplingParams,
        draw_seed: bytes,
        *,
        num_rows: int,
        with_hidden: bool,
        sink: StateSink | None = None,
    ) -> None:
        """Args: rows: fitted, with none in flight."""
        self._model_rows, self._requests, self._params = rows, requests, params
        vocab_size, width = rows.head_weight.shape
        self._device = rows.head_weight.device
        self._plan = Plan(requests, num_rows=num_rows, max_prefill_tokens=MAX_PREFILL_TOKENS)
        limits = [request.limit(params) for request in requests]
        self._num_columns = max(limits)
        counts = [request.num_samples for request in requests]
        self._limit_of_completion = np.repeat(np.array(limits, dtype=np.int64), counts)
        self._outputs = Outputs(
            requests,
            self._num_columns,
            hidden_size=width if with_hidden else None,
            device=self._device,
            sink=sink,
        )
        self._mask_V = self._is_eos_V = self._noise = None
        if params.reserved_token_ids:
            self._mask_V = vocabulary_mask(vocab_size, params.reserved_token_ids, self._device)
        if params.eos_token_ids:
            self._is_eos_V = torch.zeros(vocab_size, dtype=torch.bool, device=self._device)
            self._is_eos_V[list(params.eos_token_ids)] = True
        if params.temperature > 0:
            self._noise = NoiseAhead(self._keys_of_cells(draw_seed), num_rows=num_rows, vocab_size=vocab_size)
        self._open_prompt: tuple[int, Prompts] | None = None
        # Of each row: its last token, the column that this token goes to, the output cell of the next token.
        self._rows = torch.zeros(3, max(num_rows, MIN_BATCH_ROWS), dtype=torch.int64, device=self._device)
        self._token, self._column, self._cell = self._rows
        # The same for the host, which needs no synchronisation to count: tokens of prompt and completion, drawn tokens,
        # and how many may be drawn.
        self._host_rows = np.zeros((3, num_rows), dtype=np.int64)
        self._num_tokens, self._num_drawn, self._max_drawn = self._host_rows

    def step(self) -> bool:
        """Draw one token for every live row; False when nothing is left to draw."""
        num_decoded = self._plan.num_live
        states = [self._decode()] if num_decoded else []
        if joined := self._join():
            states = [*(part[:num_decoded] for part in states), *joined]
        if not states:
            return False
        self._draw(states[0] if len(states) == 1 else torch.cat(states))
        self._leave()
        return True

    @property
    def num_drawn(self) -> int:
        """Tokens drawn so far."""
        return self._outputs.num_drawn + int(self._num_drawn[: self._plan.num_live].sum())

    def completions(self) -> list[Completion]:
        """All completions, ordered by (group, sample).

        Raises:
            OurFault: the weights gave logits that are not finite.
        """
        return self._outputs.completions()

    def _keys_of_cells(self, draw_seed: bytes) -> Tensor:
        """int32 [N * T, 2]: the position key of every output cell."""
        row_keys_N12 = torch.from_numpy(row_keys(draw_seed, self._outputs.rows)).to(self._device).unsqueeze(1)
        first_positions = [request.first_position for request in self._requests for _ in request.samples]
        positions_NT = torch.tensor(first_positions).unsqueeze(1) + torch.arange(self._num_columns)
        return position_keys(row_keys_N12, positions_NT.to(self._device)).view(-1, 2)

    def _decode(self) -> Tensor:
        """States [at least n, D] after appending each live row's last token."""
        num_live = self._plan.num_live
        longest = int(self._num_tokens[:num_live].max()) - 1
        return self._model_rows.decode(self._token, self._column, num_live, longest)

    def _join(self) -> list[Tensor]:
        """Fill free rows from the queue; the states that predict each one's first token."""
        states = []
        while (joining := self._plan.join()) is not None:
            prompts = self._prompts(joining.requests)
            self._place(joining, prompts)
            states.append(prompts.last_hidden_PD.index_select(0, self._on_device(joining.request_of_row)))
        return states

    def _prompts(self, requests: range) -> Prompts:
        """Prompts of consecutive requests. The first may still be there from the last join: it had samples left."""
        prompts = [self._requests[index].prompt_tokens for index in requests]
        if self._open_prompt is None or self._open_prompt[0] != requests[0]:
            prefilled = self._model_rows.prefill(prompts)
        elif len(prompts) == 1:
            prefilled = self._open_prompt[1]
        else:
            prefilled = self._open_prompt[1].followed_by(self._model_rows.prefill(prompts[1:]))
        self._open_prompt = (requests[-1], prefilled.last())
        return prefilled

    def _place(self, joining: Joining, prompts: Prompts) -> None:
        """Copy prompts into the rows that join, and set what is known of these rows."""
        num_live = self._plan.num_live
        first = num_live - joining.count
        lengths = prompts.lengths_P[joining.request_of_row]
        self._num_tokens[first:num_live], self._num_drawn[first:num_live] = lengths, 0
        self._max_drawn[first:num_live] = self._limit_of_completion[joining.first : joining.first + joining.count]
        longest = int(self._num_tokens[:num_live].max())
        self._model_rows.insert(first, prompts, joining.request_of_row, longest)
        self._column[first:num_live] = self._on_device(lengths - 1)
        cells = self._cell[first:num_live]
        torch.arange(joining.first, joining.first + joining.count, out=cells).mul_(self._num_columns)
        if self._noise is not None:
            self._noise.join(first, cells)

    def _draw(self, states_nD: Tensor) -> None:
        """Draw every live row's next token and record it."""
        num_live = self._plan.num_live
        logits = next_token_logits(
            _at_least(states_nD, MIN_BATCH_ROWS),
            self._model_rows.head_weight,
            temperature=self._params.temperature or 1.0,
            mask_V=self._mask_V,
        )
        cells = self._cell[:num_live].clone()
        tokens, logprobs = draw(logits[:num_live], None if self._noise is None else self._noise.take(cells))
        self._outputs.add(cells, tokens, logprobs, states_nD[:num_live])
        self._token[:num_live] = tokens
        self._rows[1:, :num_live] += 1
        self._host_rows[:2, :num_live] += 1

    def _leave(self) -> None:
        """Free the rows that ended, and pack the others."""
        ended = self._num_drawn[: self._plan.num_live] == self._max_drawn[: self._plan.num_live]
        drew_eos = self._drew_eos()
        if drew_eos is not None:
            ended |= drew_eos
        elif not ended.any():
            return
        leaving = self._plan.leave(ended)
        has_eos = np.zeros(len(leaving.rows), dtype=np.bool_) if drew_eos is None else drew_eos[leaving.rows]
        self._outputs.end(leaving.completions, self._num_drawn[leaving.rows], has_eos)
        if len(leaving.targets):
            self._host_rows[:, leaving.targets] = self._host_rows[:, leaving.sources]
            targets, sources = self._on_device(leaving.targets), self._on_device(leaving.sources)
            self._rows.index_copy_(1, targets, self._rows.index_select(1, sources))
            self._model_rows.move(targets, sources)
            if self._noise is not None:
                self._noise.move(targets, sources)
        # Idle rows run along when fewer than MIN_BATCH_ROWS are live: keep them inside the cache.
        self._rows[:, self._plan.num_live : MIN_BATCH_ROWS] = 0

    def _drew_eos(self) -> NDArray[np.bool_] | None:
        """Which live rows drew an end-of-sequence id; None when none did."""
        if self._is_eos_V is None:
            return None
        drew_eos = self._is_eos_V.index_select(0, self._token[: self._plan.num_live])
        if not bool(drew_eos.any()):
            return None
        on_host: NDArray[np.bool_] = drew_eos.cpu().numpy()
        return on_host

    def _on_device(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _at_least(rows: Tensor, count: int) -> Tensor:
    """The rows, with zeros after them when there are fewer than `count`."""
    missing = count - len(rows)
    return rows if missing <= 0 else torch.cat((rows, rows.new_zeros(missing, rows.shape[1])))
