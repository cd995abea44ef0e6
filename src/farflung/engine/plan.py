"""Which completion runs in which row of the batch: the host's half of continuous batching, without a model.

Completions are numbered 0 .. N - 1 as the requests and their samples go, and join in that order; a completion's cells
in the output tables are `number * max_tokens + position`. Live rows are always rows 0 .. n - 1. All bookkeeping is on
arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farflung.engine.base import GroupRequest

Indices = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Joining:
    """Completions `first` .. `first + count - 1` join as the next rows."""

    first: int
    count: int
    requests: range
    """The requests that they belong to, in order."""
    request_of_row: Indices
    """[count] index into `requests`."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Leaving:
    """Rows that ended, and what moves into their places."""

    completions: Indices
    """Numbers of the completions that ended."""
    rows: Indices
    """The rows that they were in."""
    targets: Indices
    """Rows to overwrite so that the live ones are again the first."""
    sources: Indices
    """The rows to copy there."""


class Plan:
    """The queue and the occupied rows of one `generate` call."""

    def __init__(self, requests: Sequence[GroupRequest], *, num_rows: int, max_prefill_tokens: int) -> None:
        self._ends = np.cumsum([request.num_samples for request in requests])
        self._prompt_lengths = np.array([len(request.prompt_tokens) for request in requests])
        self._num_rows, self._max_prefill_tokens = num_rows, max_prefill_tokens
        self._next = 0
        self._completion_of_row = np.full(num_rows, -1, dtype=np.int64)
        self.num_live = 0

    @property
    def num_completions(self) -> int:
        return int(self._ends[-1])

    @property
    def live(self) -> Indices:
        """[n] completion of each live row."""
        return self._completion_of_row[: self.num_live]

    def join(self) -> Joining | None:
        """The next completions that fit into free rows and one prefill; None when none waits or no row is free."""
        count = min(self._num_rows - self.num_live, self.num_completions - self._next)
        if count == 0:
            return None
        first_request = int(np.searchsorted(self._ends, self._next, side="right"))
        fitting = np.searchsorted(
            np.cumsum(self._prompt_lengths[first_request:]), self._max_prefill_tokens, side="right"
        )
        after = first_request + max(1, int(fitting))
        count = min(count, int(self._ends[after - 1]) - self._next)
        numbers = np.arange(self._next, self._next + count)
        request_of_row = np.searchsorted(self._ends, numbers, side="right")
        self._completion_of_row[self.num_live : self.num_live + count] = numbers
        joining = Joining(
            first=self._next,
            count=count,
            requests=range(first_request, int(request_of_row[-1]) + 1),
            request_of_row=request_of_row - first_request,
        )
        self._next += count
        self.num_live += count
        return joining

    def leave(self, ended_n: NDArray[np.bool_]) -> Leaving:
        """Free the rows that ended; the last live rows take their places."""
        rows = np.flatnonzero(ended_n)
        completions = self._completion_of_row[rows]
        remaining = self.num_live - len(rows)
        targets = rows[rows < remaining]
        sources = remaining + np.flatnonzero(~ended_n[remaining:])
        self._completion_of_row[targets] = self._completion_of_row[sources]
        self.num_live = remaining
        return Leaving(completions=completions, rows=rows, targets=targets, sources=sources)
