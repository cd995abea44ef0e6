"""Parts of a pool's tasks that each get a fixed share of the work, such as the environments of a mixture.

    turns           endless: position -> (stratum, how often it had its turn before)
    interleaving    finite:  task index <-> (stratum, index in the stratum), a bijection; with weights 2 : 1

        turn     0 1 2 3 4 5 6 ...          index    0 1 2 3 4 5 ...    sizes 3 and 5
        stratum  a a b a a b a ...          stratum  a a b a b b b b    a is used up: the rest go on alone

Turn j (from 0) of a stratum with weight w of W comes in the window [floor(j W / w), ceil((j + 1) W / w)) and the one
whose window ends first goes first. Windows of this kind can always all be met by one at a time (Baruah, Cohen, Plaxton
and Varvel, Proportionate progress, 1996), so over any first n turns every stratum has had n w / W, give or take less
than one. This module does not know tasks, secrets or who asks.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import gcd

from farflung.wire.pool import Stratum


class Turns:
    """Whose turn it is, for ever; one period is kept, whose length is the sum of the weights over their divisor."""

    def __init__(self, weights: Sequence[int]) -> None:
        """
        Args:
            weights: at least one, none negative, not all 0. One of weight 0 never has a turn.
        """
        if not weights or min(weights) < 0 or not any(weights):
            raise ValueError(f"weights {tuple(weights)}: at least one, none negative and not all 0")
        divisor = gcd(*weights)
        self._weights = tuple(weight // divisor for weight in weights)
        self._period = sum(self._weights)
        self._positions: tuple[list[int], ...] = tuple([] for _ in weights)
        self._order: list[tuple[int, int]] = []
        for position in range(self._period):
            stratum = self._most_urgent(position)
            self._order.append((stratum, len(self._positions[stratum])))
            self._positions[stratum].append(position)

    def at(self, position: int) -> tuple[int, int]:
        """(stratum, its number of turns before this one)."""
        cycle, offset = divmod(position, self._period)
        stratum, rank = self._order[offset]
        return stratum, cycle * self._weights[stratum] + rank

    def position_of(self, stratum: int, rank: int) -> int:
        """Where the stratum has its turn number `rank`, from 0. Raises `ValueError` if it never has one."""
        if not self._weights[stratum]:
            raise ValueError(f"stratum {stratum} has weight 0: it has no turns")
        cycle, offset = divmod(rank, self._weights[stratum])
        return cycle * self._period + self._positions[stratum][offset]

    def counts(self, num_turns: int) -> tuple[int, ...]:
        """How many of the first `num_turns` each stratum has."""
        cycles, offset = divmod(num_turns, self._period)
        partial = [0] * len(self._weights)
        for stratum, _ in self._order[:offset]:
            partial[stratum] += 1
        return tuple(cycles * weight + extra for weight, extra in zip(self._weights, partial, strict=True))

    def _most_urgent(self, position: int) -> int:
        """Of the strata whose next window has begun, the one whose window ends first."""
        best, best_end = -1, 0
        for stratum, weight in enumerate(self._weights):
            rank = len(self._positions[stratum])
            if not weight or rank * self._period // weight > position:
                continue
            end = -(-(rank + 1) * self._period // weight)
            if best < 0 or end < best_end:
                best, best_end = stratum, end
        return best


class Interleaving:
    """All tasks of all strata in one row, by weight for as long as each has some left."""

    def __init__(self, sizes: Sequence[int], weights: Sequence[int]) -> None:
        self._phases: list[_Phase] = []
        left, used, start = list(sizes), [0] * len(sizes), 0
        while any(left):
            turns = turns_by([weight if rest else 0 for weight, rest in zip(weights, left, strict=True)])
            length = min(turns.position_of(stratum, rest - 1) + 1 for stratum, rest in enumerate(left) if rest)
            self._phases.append(_Phase(start, tuple(used), turns))
            for stratum, count in enumerate(turns.counts(length)):
                left[stratum] -= count
                used[stratum] += count
            start += length
        self._ends = [*(phase.start for phase in self._phases[1:]), start]
        self._sizes = tuple(sizes)

    def locate(self, index: int) -> tuple[int, int]:
        """(stratum, index in it). Raises `IndexError` outside [0, all tasks)."""
        if not 0 <= index < self._ends[-1]:
            raise IndexError(f"task {index} of {self._ends[-1]}")
        phase = next(phase for phase, end in zip(self._phases, self._ends, strict=True) if index < end)
        stratum, rank = phase.turns.at(index - phase.start)
        return stratum, phase.used[stratum] + rank

    def index_of(self, stratum: int, member: int) -> int:
        """The inverse of `locate`. Raises `IndexError` if the stratum has no such task."""
        if not 0 <= member < self._sizes[stratum]:
            raise IndexError(f"task {member} of stratum {stratum}, which has {self._sizes[stratum]}")
        phase = next(phase for phase in reversed(self._phases) if phase.used[stratum] <= member)
        return phase.start + phase.turns.position_of(stratum, member - phase.used[stratum])


class _Phase:
    """A stretch of an interleaving in which the same strata have tasks left."""

    def __init__(self, start: int, used: tuple[int, ...], turns: Turns) -> None:
        self.start = start
        self.used = used
        """Tasks of each stratum that lie before."""
        self.turns = turns


def turns_by(weights: Sequence[int]) -> Turns:
    """`Turns`, remembered: they are asked for with every lease."""
    return _turns(tuple(weights))


def interleaving_of(strata: Sequence[Stratum]) -> Interleaving:
    """Of a pool's strata, remembered."""
    return _interleaving(tuple(stratum.num_tasks for stratum in strata), tuple(stratum.weight for stratum in strata))


def index_from_the_end(strata: Sequence[Stratum], num_tasks: int, draw: int) -> int:
    """The task of a draw that goes through every stratum by its weight, each from its last task backwards."""
    if not strata:
        return num_tasks - 1 - draw % num_tasks
    stratum, rank = turns_by([stratum.weight for stratum in strata]).at(draw)
    size = strata[stratum].num_tasks
    return interleaving_of(strata).index_of(stratum, size - 1 - rank % size)


@lru_cache(maxsize=64)
def _turns(weights: tuple[int, ...]) -> Turns:
    return Turns(weights)


@lru_cache(maxsize=16)
def _interleaving(sizes: tuple[int, ...], weights: tuple[int, ...]) -> Interleaving:
    return Interleaving(sizes, weights)
