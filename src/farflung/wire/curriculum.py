"""What the trainer would like to be sampled next, published with a version and bound into its leases by digest.

The tasks of a slot follow from the epoch's secret, the slot and this record (`slots.curriculum`), so a plan steers what
is sampled while neither the node nor the coordinator chooses.
"""

from typing import ClassVar

from farflung.wire.canonical import Record
from farflung.wire.invariants import require_counts, require_digests
from farflung.wire.pool import MAX_STRATA, MAX_TOTAL_WEIGHT

MAX_PLANNED_TASKS = 4096
"""Tasks that a plan may name. It bounds the record, which every lease's tasks are computed from."""
MAX_TICKETS = 16
PERMILLE = 1000


class StratumPlan(Record, frozen=True, kw_only=True):
    """For one part of the tasks; there is one of it where the environment has no parts."""

    weight: int
    """Share of the steered groups, over the sum of all weights."""
    revisit_permille: int = 0
    """Of its steered groups: so many in a thousand are named tasks, the others fresh ones."""
    tasks: tuple[int, ...] = ()
    """Task indices worth another visit, ascending."""
    tickets: tuple[int, ...] = ()
    """How often each of them comes in one round."""

    def __post_init__(self) -> None:
        require_counts(weight=self.weight, revisit_permille=self.revisit_permille)
        require_counts(tasks=min(self.tasks, default=0))
        if self.revisit_permille > PERMILLE:
            raise ValueError(f"revisit_permille is {self.revisit_permille}: at most {PERMILLE}")
        if len(self.tasks) != len(self.tickets) or list(self.tasks) != sorted(set(self.tasks)):
            raise ValueError(
                f"{len(self.tasks)} tasks with {len(self.tickets)} tickets: as many of each, the tasks ascending"
            )
        if self.tickets and not 1 <= min(self.tickets) <= max(self.tickets) <= MAX_TICKETS:
            raise ValueError(f"tickets from {min(self.tickets)} to {max(self.tickets)}: from 1 to {MAX_TICKETS}")
        if self.revisit_permille and not self.tasks:
            raise ValueError(f"revisit_permille is {self.revisit_permille} without tasks to visit")


class CurriculumPlan(Record, frozen=True, kw_only=True):
    """Of every thousand groups `explore_permille` are as without a plan; the others are steered by the strata."""

    DOMAIN: ClassVar[str] = "farflung/curriculum-plan/1"
    MAX_BYTES: ClassVar[int] = 1 << 18

    pool_digest: str
    policy_version: int
    """The version with which it was published; it holds until the next plan."""
    explore_permille: int
    """At least 1, so that every task comes some time, whatever the plan."""
    strata: tuple[StratumPlan, ...]

    def __post_init__(self) -> None:
        require_digests(pool_digest=self.pool_digest)
        require_counts(policy_version=self.policy_version)
        require_counts(at_least=1, explore_permille=self.explore_permille)
        if self.explore_permille > PERMILLE:
            raise ValueError(f"explore_permille is {self.explore_permille}: at most {PERMILLE}")
        weights = [stratum.weight for stratum in self.strata]
        if not 1 <= len(weights) <= MAX_STRATA or not 1 <= sum(weights) <= MAX_TOTAL_WEIGHT:
            raise ValueError(
                f"{len(weights)} strata with a total weight of {sum(weights)}: from 1 to {MAX_STRATA} and from 1 to "
                f"{MAX_TOTAL_WEIGHT}"
            )
        num_tasks = sum(len(stratum.tasks) for stratum in self.strata)
        if num_tasks > MAX_PLANNED_TASKS:
            raise ValueError(f"a plan of {num_tasks} tasks: at most {MAX_PLANNED_TASKS}")
