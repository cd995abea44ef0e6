"""Where drawn tokens are collected, and how they become completions.

A cell is one position of one completion: cell `number * T + position` of N completions of at most T tokens. Writes are
kept back and done together, because a scatter costs a kernel call per table and step.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.engine.base import Completion, GroupRequest, StateSink
from farflung.errors import OurFault
from farflung.wire.rollout import StopReason

STEPS_PER_WRITE = 64


class Outputs:
    """Tables [N, T] of one `generate` call.

    Completions are numbered as the requests and their samples go; they come out by (group, sample).
    """

    def __init__(
        self,
        requests: Sequence[GroupRequest],
        max_tokens: int,
        *,
        hidden_size: int | None,
        device: torch.device,
        sink: StateSink | None = None,
    ) -> None:
        """
        Args:
            hidden_size: None = states are not kept.
            sink: is given all states, up to `STEPS_PER_WRITE` of each completion at a time.
        """
        self._requests, self._sink = requests, sink
        self.num_completions = sum(request.num_samples for request in requests)
        num_cells = self.num_completions * max_tokens
        self._max_tokens = max_tokens
        self._tokens = torch.zeros(num_cells, dtype=torch.int64, device=device)
        self._logprobs = torch.zeros(num_cells, device=device)
        self._hidden = None if hidden_size is None else torch.zeros(num_cells, hidden_size, device=device)
        self._pending: list[tuple[Tensor, ...]] = []
        self._num_drawn = np.zeros(self.num_completions, dtype=np.int64)
        self._has_eos = np.zeros(self.num_completions, dtype=np.bool_)

    @property
    def num_drawn(self) -> int:
        """Tokens of the completions that ended."""
        return int(self._num_drawn.sum())

    @property
    def rows(self) -> Iterable[tuple[int, int]]:
        """(group, sample) of every completion, in order of its number."""
        return ((request.group, sample) for request in self._requests for sample in request.samples)

    def add(self, cells_n: Tensor, tokens_n: Tensor, logprobs_n: Tensor, states_nD: Tensor) -> None:
        """One step's draws; the tensors must not change afterwards."""
        kept = (cells_n, tokens_n, logprobs_n)
        has_use = self._hidden is not None or self._sink is not None
        self._pending.append((*kept, states_nD) if has_use else kept)
        if len(self._pending) == STEPS_PER_WRITE:
            self._write()

    def end(self, numbers: NDArray[np.int64], num_drawn: NDArray[np.int64], has_eos: NDArray[np.bool_]) -> None:
        """Completions with these numbers have drawn their last token."""
        self._num_drawn[numbers], self._has_eos[numbers] = num_drawn, has_eos

    def completions(self) -> list[Completion]:
        """Every completion, by (group, sample).

        Raises:
            OurFault: the weights gave logits that are not finite.
        """
        self._write()
        shape = (self.num_completions, self._max_tokens)
        tokens_NT = self._tokens.to(torch.int32).view(shape).cpu().numpy()
        logprobs_NT = self._logprobs.view(shape).cpu().numpy()
        hidden_NTD = None if self._hidden is None else self._hidden.view(*shape, -1).cpu().numpy()
        if not np.isfinite(logprobs_NT).all():
            raise OurFault("the loaded weights give logits that are not finite: this policy cannot be sampled")
        completions = [
            Completion(
                group=group,
                sample=sample,
                tokens=tokens_NT[number, :count],
                logprobs=logprobs_NT[number, :count],
                stop_reason=StopReason.EOS if has_eos else StopReason.LENGTH,
                hidden=None if hidden_NTD is None else hidden_NTD[number, :count],
            )
            for number, ((group, sample), count, has_eos) in enumerate(
                zip(self.rows, self._num_drawn.tolist(), self._has_eos.tolist(), strict=True)
            )
        ]
        return sorted(completions, key=lambda completion: (completion.group, completion.sample))

    def _write(self) -> None:
        if not self._pending:
            return
        cells, tokens, logprobs, *states = (torch.cat(parts) for parts in zip(*self._pending, strict=True))
        self._pending.clear()
        self._tokens.index_copy_(0, cells, tokens)
        self._logprobs.index_copy_(0, cells, logprobs)
        if self._hidden is not None:
            self._hidden.index_copy_(0, cells, states[0].float())
        if self._sink is not None:
            self._pass_on(self._sink, cells, states[0])

    def _pass_on(self, sink: StateSink, cells: Tensor, states_nD: Tensor) -> None:
        """Cells are in order of completions, and within them of positions."""
        ordered, order = cells.sort()
        numbers, counts = torch.unique_consecutive(ordered // self._max_tokens, return_counts=True)
        parts = states_nD.index_select(0, order).split(counts.tolist())
        rows = list(self.rows)
        for number, part in zip(numbers.tolist(), parts, strict=True):
            group, sample = rows[number]
            sink.add(group, sample, part)
