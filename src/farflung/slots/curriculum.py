"""Which tasks a slot has, with strata and with a plan: a pure function of secret, slot, rules and plan.

    position p = slot * groups_per_slot + group         counts the groups of an epoch, as without a plan

    explore    e in every 1000 positions, evenly spread. Exploring position number n takes the turn n of the pool's
               strata, by their weights, and of its stratum the next task in a keyed permutation: no task of a stratum
               twice before all once, whatever the plans were. Without a plan every position explores.
    revisit    a task that the plan names: keyed permutations of the tickets of its stratum
    fresh      any task of the stratum: number p of a keyed permutation of its own, so none twice soon

The last two take turns by the plan's weights, and within a stratum r in every 1000 revisit. Nobody without the secret
can foresee a task, and whoever has it (the coordinator now, everybody after the reveal) can recompute all of them:
`slots.audit` is that audit. This module does not know why a plan wants what it wants (`rl.curriculum`).
"""

from bisect import bisect_right
from itertools import accumulate

from farflung.slots.permutation import KeyedPermutation, slot_tasks
from farflung.slots.seeds import keyed_hash
from farflung.slots.strata import interleaving_of, turns_by
from farflung.wire.curriculum import PERMILLE, CurriculumPlan, StratumPlan
from farflung.wire.pool import EnvironmentSpec

EXPLORE_DOMAIN = "farflung/stratum-tasks/1"
FRESH_DOMAIN = "farflung/fresh-tasks/1"
REVISIT_DOMAIN = "farflung/revisited-tasks/1"


def tasks_of_slot(
    secret: bytes, slot: int, groups_per_slot: int, environment: EnvironmentSpec, plan: CurriculumPlan | None = None
) -> tuple[int, ...]:
    """Task index of each group of a slot.

    Raises:
        ValueError: a count is below 1 or the slot is negative. Whether a plan fits is asked once (`plan_problem`).
    """
    if slot < 0 or groups_per_slot < 1:
        raise ValueError(f"slot {slot} of {groups_per_slot} groups: slots count from 0, groups from 1")
    if plan is None and not environment.strata:
        return slot_tasks(secret, slot, groups_per_slot, environment.num_tasks)
    chooser = _Chooser(secret, environment, plan)
    first = slot * groups_per_slot
    return tuple(chooser.task(position) for position in range(first, first + groups_per_slot))


def plan_problem(plan: CurriculumPlan, environment: EnvironmentSpec) -> str | None:
    """Why the plan is not one for this environment, in a sentence; None when it is."""
    num_strata = max(1, len(environment.strata))
    if len(plan.strata) != num_strata:
        return f"the plan has {len(plan.strata)} strata, the environment {num_strata}"
    for number, stratum in enumerate(plan.strata):
        for task in stratum.tasks:
            if task >= environment.num_tasks:
                return f"the plan names task {task}, the environment has {environment.num_tasks}"
            if environment.strata and interleaving_of(environment.strata).locate(task)[0] != number:
                return f"the plan names task {task} in stratum {number}, which does not have it"
    return None


class _Chooser:
    """Tasks by position, for one secret, environment and plan."""

    def __init__(self, secret: bytes, environment: EnvironmentSpec, plan: CurriculumPlan | None) -> None:
        self._secret = secret
        self._plan = plan
        self._plan_digest = "" if plan is None else plan.digest()
        self._strata = environment.strata
        self._sizes = [stratum.num_tasks for stratum in environment.strata] or [environment.num_tasks]
        self._weights = [stratum.weight for stratum in environment.strata] or [1]

    def task(self, position: int) -> int:
        plan = self._plan
        if plan is None:
            return self._explored(position)
        num_explored, explores = _spread(position, plan.explore_permille)
        if explores:
            return self._explored(num_explored)
        stratum, rank = turns_by([part.weight for part in plan.strata]).at(position - num_explored)
        part = plan.strata[stratum]
        num_revisits, revisits = _spread(rank, part.revisit_permille)
        return self._revisited(part, stratum, num_revisits) if revisits else self._fresh(stratum, position)

    def _explored(self, number: int) -> int:
        if not self._strata:
            return slot_tasks(self._secret, number, 1, self._sizes[0])[0]
        stratum, rank = turns_by(self._weights).at(number)
        return self._index(stratum, self._permuted(EXPLORE_DOMAIN, stratum, rank))

    def _fresh(self, stratum: int, position: int) -> int:
        return self._index(stratum, self._permuted(FRESH_DOMAIN, stratum, position))

    def _revisited(self, part: StratumPlan, stratum: int, number: int) -> int:
        ends = list(accumulate(part.tickets))
        round_number, ticket = divmod(number, ends[-1])
        key = keyed_hash(self._secret, REVISIT_DOMAIN, self._plan_digest, stratum, round_number)
        return part.tasks[bisect_right(ends, KeyedPermutation(key, ends[-1]).at(ticket))]

    def _permuted(self, domain: str, stratum: int, number: int) -> int:
        size = self._sizes[stratum]
        round_number, place = divmod(number, size)
        return KeyedPermutation(keyed_hash(self._secret, domain, stratum, round_number), size).at(place)

    def _index(self, stratum: int, member: int) -> int:
        return interleaving_of(self._strata).index_of(stratum, member) if self._strata else member


def _spread(position: int, permille: int) -> tuple[int, bool]:
    """(how many before this position belong, whether it does) of so many in a thousand, evenly spread."""
    before = position * permille // PERMILLE
    return before, (position + 1) * permille // PERMILLE > before
