"""A finite set of problems, dealt once to the two splits.

    order    = keyed permutation of [0, size) under the environment's seed
    held out = order[0 : H]          H = at most a tenth and at most 1024, but at least one
    train    = order[H : size]

The permutation is a bijection, so the splits share no problem and together hold all of them; where every problem has
its own prompt, they share no prompt either. This module does not know what a problem looks like.
"""

from collections.abc import Sequence

from farflung.envs.base import Split
from farflung.envs.tasks import check_index
from farflung.slots.permutation import KeyedPermutation
from farflung.slots.seeds import keyed_hash

MAX_HELDOUT_TASKS = 1024
"""Enough for a standard error of 1.6 points of accuracy. Changing it changes the tasks of every lease."""

_KEY = b"farflung environments"
"""Public: tasks are no secret. Which of them a lease gets is drawn elsewhere, under an epoch's secret."""


class ProblemSet:
    """Problem numbers by split and index."""

    def __init__(self, env: str, seed: int, size: int) -> None:
        """
        Args:
            env: name of the environment; another one has another order under the same seed.
            size: number of problems, at least 2.
        """
        self._order = KeyedPermutation(keyed_hash(_KEY, "farflung/problem-order/1", env, seed), size)
        self.num_heldout_tasks = min(MAX_HELDOUT_TASKS, max(1, size // 10))
        self.num_tasks = size - self.num_heldout_tasks

    def number(self, split: Split, index: int) -> int:
        """Which problem stands at `index` of the split.

        Raises:
            IndexError: index outside the split.
        """
        check_index(split, index, self.num_tasks if split == "train" else self.num_heldout_tasks)
        return self._order.at(index if split == "heldout" else index + self.num_heldout_tasks)


def digits_of(number: int, base: int, length: int) -> list[int]:
    """`number` in `base`, most significant digit first, padded with zeros to `length`."""
    digits = []
    for _ in range(length):
        number, digit = divmod(number, base)
        digits.append(digit)
    return digits[::-1]


def uniform(below: int, domain: str, *fields: str | int) -> int:
    """An integer in [0, below) that depends on the fields alone; its bias is below 2**-200."""
    return int.from_bytes(keyed_hash(_KEY, domain, *fields), "big") % below


def shuffled(items: Sequence[int], domain: str, *fields: str | int) -> list[int]:
    """`items` in an order that depends on the fields alone, every order equally likely."""
    return sorted(items, key=lambda item: keyed_hash(_KEY, domain, *fields, item))
