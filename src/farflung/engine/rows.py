"""What sampling needs of a model: rows in flight that take a prompt, then one token after another.

The own decoder keeps its rows in one dense cache (`OwnRows`); a model of transformers brings caches of its own
(`ForeignRows`). Rows that are live are always 0 .. n - 1. Knows no sampling.

Letters: R rows, P prompts, A rows that join, D width of the states, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Indices = NDArray[np.int64]


class Prompts(Protocol):
    """What prompts leave behind; rows may be filled from it any number of times."""

    @property
    def last_hidden_PD(self) -> Tensor:  # noqa: N802 - a shape
        """Post-final-norm states that predict each prompt's first completion token."""
        ...

    @property
    def lengths_P(self) -> Indices:  # noqa: N802 - a shape
        """Tokens of each."""
        ...

    def followed_by(self, other: Any) -> "Prompts":
        """These prompts, then those of the other, which has the same type."""
        ...

    def last(self) -> "Prompts":
        """Only the last prompt."""
        ...


class Rows(Protocol):
    """Rows of one model. One thread calls it, in inference mode."""

    @property
    def head_weight(self) -> Tensor:
        """[V, D]; logits are its product with a state."""
        ...

    def fit(self, num_rows: int, num_columns: int) -> None:
        """Have room for this many rows of this many tokens; then begin anew, with none."""
        ...

    def clear(self) -> None:
        """Forget everything that the model's weights made: they have changed."""
        ...

    def prefill(self, prompts: Sequence[NDArray[np.int32]]) -> Prompts:
        """Run prompts through the model, each once."""
        ...

    def insert(self, first_row: int, prompts: Any, prompt_of_row_A: Indices, longest: int) -> None:
        """Fill rows `first_row` .. `first_row + A - 1` with prompts.

        Args:
            prompts: of the type that `prefill` gives.
            longest: at least the tokens of any live row.
        """
        ...

    def decode(self, tokens_R: Tensor, columns_R: Tensor, num_live: int, longest: int) -> Tensor:
        """Append one token to each live row: states [at least num_live, D] that predict the next ones.

        Args:
            tokens_R: int64 ids, of all rows.
            columns_R: int64, the tokens that each row holds before.
            longest: at least the largest of the live ones, known to the host.
        """
        ...

    def move(self, targets: Tensor, sources: Tensor) -> None:
        """Copy rows onto others (int64 row indices, equal number, disjoint)."""
        ...
