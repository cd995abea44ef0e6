"""Sampling for requests that come and go while others run: the engine behind a server.

    add       a request waits for a free row
    step      every live row gets one token; waiting requests join first, ended ones leave at once
    cancel    a row leaves before its end

Each request has its own temperature, seed and limits, and its tokens do not depend on what else is in the batch: the
noise is that of (seed, choice, position), the same public randomness that rollouts are drawn with, so an answer can be
replayed. Synchronous; one thread calls it. It does not know text, sockets or stop strings.

Letters: n live rows, V vocabulary, D hidden size.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.engine.forward import MIN_BATCH_ROWS
from farflung.engine.rows import Rows
from farflung.errors import OurFault
from farflung.model.head import next_token_logits, vocabulary_mask
from farflung.proofs.draws import draw, gumbel_noise, position_keys
from farflung.slots.noise import row_keys
from farflung.wire.rollout import StopReason

MAX_PREFILL_TOKENS = 1024
"""Prompt tokens that may join between two steps, so that running answers do not stall; a longer prompt goes alone."""


MIN_TEMPERATURE = 1e-3
"""Logits divided by less would leave float32, and one request would look like broken weights."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LiveRequest:
    """One completion to sample."""

    prompt_tokens: NDArray[np.int32]
    max_tokens: int
    temperature: float
    """0 = greedy."""
    draw_seed: bytes
    choice: int = 0
    """Tells completions of one prompt and seed apart."""
    eos_token_ids: frozenset[int]
    num_top: int = 0
    """Most likely alternatives to report with each token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveToken:
    """One drawn token."""

    token: int
    logprob: float
    """Of log-softmax(logits / temperature) over the unreserved vocabulary; at temperature 0 that of temperature 1."""
    top: tuple[tuple[int, float], ...]
    """(id, logprob), most likely first."""
    stop_reason: StopReason | None
    """Set on the last token."""


@dataclass(kw_only=True, eq=False, slots=True)
class _Row:
    handle: int
    request: LiveRequest
    key: NDArray[np.int32]
    num_tokens: int
    """Of prompt and completion, those in the cache and the newest one."""
    num_drawn: int = 0


class LiveBatch:
    """Rows in flight over one model."""

    def __init__(self, rows: Rows, *, max_rows: int, max_columns: int, reserved_token_ids: Sequence[int] = ()) -> None:
        """
        Args:
            rows: nobody else's.
            max_rows: completions in flight; others wait.
            max_columns: most tokens of prompt and completion together.
            reserved_token_ids: never drawn.
        """
        self._model_rows = rows
        self._device, self._vocab_size = rows.head_weight.device, len(rows.head_weight)
        num_rows = max(max_rows, MIN_BATCH_ROWS)
        self.max_rows, self.max_columns = max_rows, max_columns
        rows.fit(num_rows, max_columns)
        self._mask_V = vocabulary_mask(self._vocab_size, reserved_token_ids, self._device)
        self._waiting: deque[tuple[int, LiveRequest]] = deque()
        self._rows: list[_Row] = []
        self._columns = torch.zeros(num_rows, dtype=torch.int64, device=self._device)
        self._tokens = torch.zeros(num_rows, dtype=torch.int64, device=self._device)
        self._next_handle = 0

    @property
    def num_live(self) -> int:
        return len(self._rows)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def add(self, request: LiveRequest) -> int:
        """Queue a request; returns its handle.

        Raises:
            ValueError: prompt and completion do not fit, or an id is out of range.
        """
        prompt = request.prompt_tokens
        if not len(prompt) or request.max_tokens < 1:
            raise ValueError(f"{len(prompt)} prompt tokens and {request.max_tokens} to draw: both need at least one")
        if 0 < request.temperature < MIN_TEMPERATURE:
            raise ValueError(f"temperature is {request.temperature}: it must be 0 or at least {MIN_TEMPERATURE}")
        if len(prompt) + request.max_tokens > self.max_columns:
            raise ValueError(
                f"{len(prompt)} prompt tokens and {request.max_tokens} completion tokens: {self.max_columns} fit"
            )
        if int(prompt.min()) < 0 or int(prompt.max()) >= self._vocab_size:
            raise ValueError(f"a prompt id is outside the vocabulary of {self._vocab_size}")
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._waiting.append((handle, request))
        return handle

    def cancel(self, handle: int) -> None:
        """Forget a request, wherever it is; one that has ended already is no error."""
        self._waiting = deque(item for item in self._waiting if item[0] != handle)
        self._drop([index for index, row in enumerate(self._rows) if row.handle == handle])

    def step(self) -> dict[int, LiveToken]:
        """The next token of every live request, by handle; empty when there is none.

        Raises:
            OurFault: the weights give logits that are not finite.
        """
        with torch.inference_mode():
            states = self._decode()
            states += self._join()
            if not states:
                return {}
            drawn = self._draw(torch.cat(states))
        by_handle = {row.handle: token for row, token in zip(self._rows, drawn, strict=True)}
        self._drop([index for index, token in enumerate(drawn) if token.stop_reason is not None])
        return by_handle

    def _decode(self) -> list[Tensor]:
        num_live = len(self._rows)
        if not num_live:
            return []
        columns = np.zeros(len(self._columns), dtype=np.int64)
        columns[:num_live] = [row.num_tokens - 1 for row in self._rows]
        self._columns.copy_(torch.from_numpy(columns))
        return [self._model_rows.decode(self._tokens, self._columns, num_live, int(columns.max()))[:num_live]]

    def _join(self) -> list[Tensor]:
        """Prompts of waiting requests into free rows; the states that predict their first tokens."""
        joining: list[tuple[int, LiveRequest]] = []
        num_tokens = 0
        while self._waiting and len(self._rows) + len(joining) < self.max_rows:
            length = len(self._waiting[0][1].prompt_tokens)
            if joining and num_tokens + length > MAX_PREFILL_TOKENS:
                break
            joining.append(self._waiting.popleft())
            num_tokens += length
        if not joining:
            return []
        prompts = [request.prompt_tokens for _, request in joining]
        prefilled = self._model_rows.prefill(prompts)
        first = len(self._rows)
        for handle, request in joining:
            key = row_keys(request.draw_seed, [(0, request.choice)])[0]
            self._rows.append(_Row(handle=handle, request=request, key=key, num_tokens=len(request.prompt_tokens)))
        longest = max(row.num_tokens for row in self._rows)
        self._model_rows.insert(first, prefilled, np.arange(len(joining)), longest)
        return [prefilled.last_hidden_PD]

    def _draw(self, states_nD: Tensor) -> list[LiveToken]:
        num_live = len(self._rows)
        temperatures = torch.tensor([[row.request.temperature or 1.0] for row in self._rows], device=self._device)
        scaled_nD = states_nD.float() / temperatures
        missing = MIN_BATCH_ROWS - num_live
        if missing > 0:
            scaled_nD = torch.cat((scaled_nD, scaled_nD.new_zeros(missing, scaled_nD.shape[1])))
        logits_nV = next_token_logits(scaled_nD, self._model_rows.head_weight, temperature=1.0, mask_V=self._mask_V)
        tokens_n, logprobs_n = draw(logits_nV[:num_live], self._noise())
        if not bool(torch.isfinite(logprobs_n).all()):
            raise OurFault("the loaded weights give logits that are not finite: this model cannot be sampled")
        self._tokens[:num_live] = tokens_n
        tops = self._tops(logits_nV[:num_live])
        return [
            self._advance(row, token, logprob, top)
            for row, token, logprob, top in zip(self._rows, tokens_n.tolist(), logprobs_n.tolist(), tops, strict=True)
        ]

    def _noise(self) -> Tensor:
        """[n, V]; zeros in greedy rows."""
        keys_n2 = torch.from_numpy(np.stack([row.key for row in self._rows])).to(self._device)
        positions_n = torch.tensor([row.num_drawn for row in self._rows], device=self._device)
        noise_nV = gumbel_noise(position_keys(keys_n2, positions_n), self._vocab_size)
        greedy = [index for index, row in enumerate(self._rows) if row.request.temperature == 0]
        if greedy:
            noise_nV[greedy] = 0.0
        return noise_nV

    def _tops(self, logits_nV: Tensor) -> list[tuple[tuple[int, float], ...]]:
        most = max(row.request.num_top for row in self._rows)
        if not most:
            return [()] * len(self._rows)
        values, ids = torch.log_softmax(logits_nV, dim=-1).topk(most, dim=-1)
        pairs = [tuple(zip(*row, strict=True)) for row in zip(ids.tolist(), values.tolist(), strict=True)]
        return [pair[: row.request.num_top] for row, pair in zip(self._rows, pairs, strict=True)]

    def _advance(self, row: _Row, token: int, logprob: float, top: tuple[tuple[int, float], ...]) -> LiveToken:
        row.num_drawn += 1
        row.num_tokens += 1
        stop_reason = None
        if token in row.request.eos_token_ids:
            stop_reason = StopReason.EOS
        elif row.num_drawn == row.request.max_tokens:
            stop_reason = StopReason.LENGTH
        return LiveToken(token=token, logprob=logprob, top=top, stop_reason=stop_reason)

    def _drop(self, indices: list[int]) -> None:
        """Rows leave; the last live ones take their places."""
        leaving = set(indices)
        num_left = len(self._rows) - len(leaving)
        targets = [index for index in indices if index < num_left]
        sources = [index for index in range(num_left, len(self._rows)) if index not in leaving]
        if targets:
            at, of = self._on_device(np.array(targets)), self._on_device(np.array(sources))
            self._tokens.index_copy_(0, at, self._tokens.index_select(0, of))
            self._model_rows.move(at, of)
            for target, source in zip(targets, sources, strict=True):
                self._rows[target] = self._rows[source]
        del self._rows[num_left:]

    def _on_device(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self._device)
