"""Rows of a model that transformers runs, in cohorts: rows that joined together with prompts of one length.

The rows of a cohort have the same length for as long as they live, so each cohort is one block with one cache of
transformers, without padding and without a mask, whatever the model keeps in its cache. The price: as many forward
passes per token as there are cohorts. Implements `engine.rows.Rows`.

Letters: n rows of a cohort, P prompts, A rows that join, D width of the states.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.engine.rows import Indices
from farflung.model.foreign.decoder import ForeignDecoder

MIN_ROWS = 8
"""Fewer rows of some models (Granite, OLMo 2) take other paths with other last bits."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ForeignPrompts:
    """Prompts with the caches that they left."""

    caches: tuple[Any, ...]
    """Of blocks of prompts of one length."""
    cache_of_P: Indices
    place_of_P: Indices
    """Row of the block."""
    lengths_P: Indices
    last_hidden_PD: Tensor

    def followed_by(self, other: Self) -> "ForeignPrompts":
        return ForeignPrompts(
            caches=(*self.caches, *other.caches),
            cache_of_P=np.concatenate((self.cache_of_P, other.cache_of_P + len(self.caches))),
            place_of_P=np.concatenate((self.place_of_P, other.place_of_P)),
            lengths_P=np.concatenate((self.lengths_P, other.lengths_P)),
            last_hidden_PD=torch.cat((self.last_hidden_PD, other.last_hidden_PD)),
        )

    def last(self) -> "ForeignPrompts":
        return ForeignPrompts(
            caches=(self.caches[self.cache_of_P[-1]],),
            cache_of_P=np.zeros(1, dtype=np.int64),
            place_of_P=self.place_of_P[-1:],
            lengths_P=self.lengths_P[-1:],
            last_hidden_PD=self.last_hidden_PD[-1:],
        )


class _Cohort:
    """A cache and how many rows are in it; those beyond the live ones repeat the first (see `_fill`)."""

    def __init__(self, cache: Any, num_rows: int) -> None:
        self.cache, self.num_rows = cache, num_rows


class ForeignRows:
    """Any number of rows: caches grow as they are used."""

    def __init__(self, decoder: ForeignDecoder) -> None:
        self._decoder = decoder
        self._cohorts: list[_Cohort] = []
        self._cohort_of_row = np.zeros(0, dtype=np.int64)
        self._place_of_row = np.zeros(0, dtype=np.int64)
        self._head_weight: Tensor | None = None

    @property
    def head_weight(self) -> Tensor:
        """[V, D]."""
        if self._head_weight is None:
            self._head_weight = self._decoder.lm_head_weight.detach()
        return self._head_weight

    def fit(self, num_rows: int, num_columns: int) -> None:  # noqa: ARG002 - caches grow with their columns
        """Begin anew with no rows."""
        self._cohorts = []
        self._cohort_of_row = np.full(num_rows, -1, dtype=np.int64)
        self._place_of_row = np.zeros(num_rows, dtype=np.int64)

    def clear(self) -> None:
        """Forget the old weights."""
        self._head_weight = None
        self.fit(len(self._cohort_of_row), 0)

    def prefill(self, prompts: Sequence[NDArray[np.int32]]) -> ForeignPrompts:
        """Run prompts through the model, those of one length together."""
        lengths_P = np.array([len(prompt) for prompt in prompts], dtype=np.int64)
        cache_of_P, place_of_P = np.zeros_like(lengths_P), np.zeros_like(lengths_P)
        caches, states = list[Any](), list[Tensor]()
        order = list[Indices]()
        for length in np.unique(lengths_P):
            (members,) = np.nonzero(lengths_P == length)
            block = np.stack([prompts[int(member)] for member in members]).astype(np.int64)
            cache = self._new_cache()
            states.append(self._run(torch.from_numpy(block), cache)[: len(members)])
            cache_of_P[members], place_of_P[members] = len(caches), np.arange(len(members))
            caches.append(cache)
            order.append(members)
        back = torch.from_numpy(np.argsort(np.concatenate(order))).to(self._device)
        return ForeignPrompts(
            caches=tuple(caches),
            cache_of_P=cache_of_P,
            place_of_P=place_of_P,
            lengths_P=lengths_P,
            last_hidden_PD=torch.cat(states).index_select(0, back),
        )

    def insert(self, first_row: int, prompts: ForeignPrompts, prompt_of_row_A: Indices, longest: int) -> None:  # noqa: ARG002
        """As `Rows.insert`: a cohort for each block of prompts."""
        rows_A = first_row + np.arange(len(prompt_of_row_A))
        cache_of_A = prompts.cache_of_P[prompt_of_row_A]
        for number in np.unique(cache_of_A):
            members = cache_of_A == number
            places = prompts.place_of_P[prompt_of_row_A[members]]
            cache = copy.deepcopy(prompts.caches[number])
            self._keep(cache, _fill(places))
            self._cohort_of_row[rows_A[members]] = len(self._cohorts)
            self._place_of_row[rows_A[members]] = np.arange(len(places))
            self._cohorts.append(_Cohort(cache, len(places)))

    def decode(self, tokens_R: Tensor, columns_R: Tensor, num_live: int, longest: int) -> Tensor:  # noqa: ARG002
        """As `Rows.decode`: one forward pass for each cohort."""
        self._drop(num_live)
        states, rows = list[Tensor](), list[Indices]()
        for number, cohort in enumerate(self._cohorts):
            (members,) = np.nonzero(self._cohort_of_row[:num_live] == number)
            members = members[np.argsort(self._place_of_row[members])]
            tokens_n1 = tokens_R.index_select(0, torch.from_numpy(members).to(self._device)).unsqueeze(1)
            states.append(self._run(tokens_n1, cohort.cache)[: len(members)])
            rows.append(members)
        back = torch.from_numpy(np.argsort(np.concatenate(rows))).to(self._device)
        return torch.cat(states).index_select(0, back)

    def move(self, targets: Tensor, sources: Tensor) -> None:
        """As `Rows.move`; what is overwritten leaves its cohort at the next step."""
        to, of = targets.cpu().numpy(), sources.cpu().numpy()
        self._cohort_of_row[to], self._place_of_row[to] = self._cohort_of_row[of], self._place_of_row[of]

    def _drop(self, num_live: int) -> None:
        """Take rows that are not live any more out of their cohorts, and empty cohorts away."""
        self._cohort_of_row[num_live:] = -1
        kept = list[_Cohort]()
        numbers = self._cohort_of_row.copy()
        for number, cohort in enumerate(self._cohorts):
            (members,) = np.nonzero(numbers == number)
            if not len(members):
                continue
            if len(members) < cohort.num_rows:
                members = members[np.argsort(self._place_of_row[members])]
                self._keep(cohort.cache, _fill(self._place_of_row[members]))
                self._place_of_row[members] = np.arange(len(members))
                cohort.num_rows = len(members)
            self._cohort_of_row[members] = len(kept)
            kept.append(cohort)
        self._cohorts = kept

    def _run(self, tokens_nL: Tensor, cache: Any) -> Tensor:
        """States [at least n, D] of the last tokens."""
        missing = MIN_ROWS - len(tokens_nL)
        if missing > 0:
            tokens_nL = torch.cat((tokens_nL, tokens_nL[:1].expand(missing, -1)))
        return self._decoder.states(tokens_nL.to(self._device), cache)[:, -1]

    def _keep(self, cache: Any, places: Indices) -> None:
        cache.reorder_cache(torch.from_numpy(places).to(self._device))

    def _new_cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self._decoder.model.config)

    @property
    def _device(self) -> torch.device:
        return self.head_weight.device


def _fill(places: Indices) -> Indices:
    """With the first repeated up to `MIN_ROWS`, so that a row's bits do not depend on how many are beside it."""
    return np.concatenate((places, np.repeat(places[:1], max(0, MIN_ROWS - len(places)))))
