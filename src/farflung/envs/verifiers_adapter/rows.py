"""Which rows of a library's environment are trained on and which are held out; no prompt is in both.

    both data sets     training rows whose prompt is not held out; all evaluation rows
    training alone     one prompt in `HELDOUT_SHARE` is held out: those with the smallest hashes
    evaluation alone   all held out: for evaluation, not for training

Tasks keep the order of the rows. This module does not know what a row means.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from farflung.envs.base import Split
from farflung.envs.problems import uniform
from farflung.envs.tasks import check_index

HELDOUT_SHARE = 10
"""One prompt in so many, and at least one of two or more, is held out where the environment has training rows alone."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Numbers of rows of two data sets of the library `datasets`, which may be one."""

    train_data: Any
    heldout_data: Any
    train: Sequence[int]
    heldout: Sequence[int]

    def row(self, split: Split, index: int) -> dict[str, Any]:
        """What the library's `rollout` takes. Raises `IndexError` outside the split."""
        numbers = self.train if split == "train" else self.heldout
        check_index(split, index, len(numbers))
        data = self.train_data if split == "train" else self.heldout_data
        return dict(data[numbers[index]])


def rows_of(environment: Any) -> Rows:
    """Of an environment of the library whose data sets are built."""
    train, heldout = environment.build_dataset(), environment.build_eval_dataset()
    if train is None:
        return Rows(None, heldout, (), range(len(heldout)))
    keys = _prompts(train)
    if heldout is None:
        prompts = sorted(set(keys), key=lambda key: uniform(2**64, "farflung/verifiers-split/1", key))
        apart = set(prompts[: max(min(1, len(prompts) - 1), len(prompts) // HELDOUT_SHARE)])
        return Rows(
            train,
            train,
            [number for number, key in enumerate(keys) if key not in apart],
            [number for number, key in enumerate(keys) if key in apart],
        )
    held = set(_prompts(heldout))
    return Rows(train, heldout, [number for number, key in enumerate(keys) if key not in held], range(len(heldout)))


def _prompts(data: Any) -> list[str]:
    return [json.dumps(prompt, sort_keys=True, default=str) for prompt in data["prompt"]]
