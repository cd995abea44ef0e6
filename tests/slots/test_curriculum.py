"""A slot's tasks with strata and plans: pure, replayable, within their shares, and nobody starves."""

from collections import Counter
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from farflung.slots.audit import lease_problem
from farflung.slots.curriculum import plan_problem, tasks_of_slot
from farflung.slots.grants import Grant
from farflung.slots.leases import write_lease
from farflung.slots.permutation import slot_tasks
from farflung.slots.strata import interleaving_of
from farflung.wire.curriculum import CurriculumPlan, StratumPlan
from farflung.wire.lease import LeaseRequest
from farflung.wire.pool import EnvironmentSpec, PoolSpec, Stratum

SECRET = bytes(range(32))
POOL = "a" * 64
PLAIN = EnvironmentSpec(name="sort-digits", num_tasks=50)
MIXED = EnvironmentSpec(
    name="mixture",
    num_tasks=60,
    strata=(
        Stratum(name="a", num_tasks=10, weight=2),
        Stratum(name="b", num_tasks=20, weight=1),
        Stratum(name="c", num_tasks=30, weight=1),
    ),
)


def plan_of(*strata: StratumPlan, **changes: Any) -> CurriculumPlan:
    values: dict[str, Any] = {"pool_digest": POOL, "policy_version": 3, "explore_permille": 250, "strata": strata}
    return CurriculumPlan(**(values | changes))


def tasks(environment: EnvironmentSpec, plan: CurriculumPlan | None, num_slots: int, groups: int = 4) -> list[int]:
    return [task for slot in range(num_slots) for task in tasks_of_slot(SECRET, slot, groups, environment, plan)]


def explored_only(environment: EnvironmentSpec) -> CurriculumPlan:
    weights = [stratum.weight for stratum in environment.strata] or [1]
    return plan_of(*(StratumPlan(weight=weight) for weight in weights), explore_permille=1000)


def test_without_strata_and_plan_it_is_the_permutation_of_the_pool() -> None:
    assert tasks(PLAIN, None, 30) == [task for slot in range(30) for task in slot_tasks(SECRET, slot, 4, 50)]


@pytest.mark.parametrize("environment", [PLAIN, MIXED])
def test_a_plan_that_only_explores_changes_nothing(environment: EnvironmentSpec) -> None:
    assert tasks(environment, explored_only(environment), 40) == tasks(environment, None, 40)


@given(
    st.lists(st.tuples(st.integers(1, 15), st.integers(1, 9)), min_size=1, max_size=5),
    st.integers(1, 7),
    st.binary(min_size=32, max_size=32),
)
@settings(max_examples=60, deadline=None)
def test_strata_have_their_shares_over_any_prefix_and_every_task_comes_before_one_comes_twice(
    parts: list[tuple[int, int]], groups: int, secret: bytes
) -> None:
    strata = tuple(
        Stratum(name=f"s{number}", num_tasks=size, weight=weight) for number, (size, weight) in enumerate(parts)
    )
    environment = EnvironmentSpec(name="mixture", num_tasks=sum(size for size, _ in parts), strata=strata)
    total, counts = sum(weight for _, weight in parts), Counter[int]()
    seen: dict[int, list[int]] = {number: [] for number in range(len(parts))}
    for slot in range(40):
        for task in tasks_of_slot(secret, slot, groups, environment):
            stratum, member = interleaving_of(strata).locate(task)
            counts[stratum] += 1
            seen[stratum].append(member)
            for number, (_, weight) in enumerate(parts):
                assert abs(counts[number] * total - counts.total() * weight) < total
    for number, (size, _) in enumerate(parts):
        for start in range(0, len(seen[number]), size):
            part = seen[number][start : start + size]
            assert len(set(part)) == len(part)


@given(st.integers(1, 1000), st.integers(0, 1000), st.lists(st.integers(0, 49), min_size=1, max_size=12, unique=True))
@settings(max_examples=30, deadline=None)
def test_no_plan_starves_a_task(explore: int, revisit: int, named: list[int]) -> None:
    """Exploring positions go through all tasks, whatever the others do and however the plan changes."""
    part = StratumPlan(weight=1, revisit_permille=revisit, tasks=tuple(sorted(named)), tickets=(1,) * len(named))
    plan = plan_of(part, explore_permille=explore)
    exploring = [p for p in range(-(-60 * 1000 // explore)) if (p + 1) * explore // 1000 > p * explore // 1000]
    drawn = [tasks_of_slot(SECRET, position, 1, PLAIN, plan)[0] for position in exploring[:50]]
    assert sorted(drawn) == list(range(50))


def test_revisits_have_their_share_and_each_task_its_tickets() -> None:
    part = StratumPlan(weight=1, revisit_permille=500, tasks=(7, 8, 9), tickets=(1, 2, 5))
    plan = plan_of(part, explore_permille=200)
    # 200 positions: 40 explore, 80 are fresh, and 80 are ten rounds of the eight tickets.
    fresh = replace(plan, strata=(replace(part, revisit_permille=0),))
    named = Counter(
        task
        for position in range(200)
        if (task := tasks_of_slot(SECRET, position, 1, PLAIN, plan)[0])
        != tasks_of_slot(SECRET, position, 1, PLAIN, fresh)[0]
        or task in part.tasks
    )
    for task, tickets in zip(part.tasks, part.tickets, strict=True):
        assert named[task] >= 10 * tickets - 2
        assert named[task] <= 10 * tickets + 10


def test_the_weights_of_a_plan_are_the_shares_of_the_steered_groups() -> None:
    plan = plan_of(StratumPlan(weight=1), StratumPlan(weight=0), StratumPlan(weight=9), explore_permille=100)
    counts = Counter(interleaving_of(MIXED.strata).locate(task)[0] for task in tasks(MIXED, plan, 100, 10))
    assert counts == {0: 90 + 50, 1: 25, 2: 810 + 25}


def test_a_new_plan_does_not_disturb_what_is_explored() -> None:
    """Half-way through, other wishes come: the exploring positions go on in the same permutation."""
    one = plan_of(StratumPlan(weight=1, revisit_permille=1000, tasks=(1,), tickets=(1,)), explore_permille=500)
    other = plan_of(StratumPlan(weight=1, revisit_permille=1000, tasks=(2,), tickets=(1,)), explore_permille=500)
    drawn = [tasks_of_slot(SECRET, slot, 1, PLAIN, one if slot < 50 else other)[0] for slot in range(100)]
    assert sorted(drawn[1::2]) == list(range(50))


def test_the_secret_and_the_plan_decide() -> None:
    plan = plan_of(StratumPlan(weight=1, revisit_permille=900, tasks=tuple(range(0, 50, 2)), tickets=(3,) * 25))
    base = tasks_of_slot(SECRET, 5, 8, PLAIN, plan)
    assert base == tasks_of_slot(SECRET, 5, 8, PLAIN, CurriculumPlan.from_bytes(plan.to_bytes()))
    assert base != tasks_of_slot(sha256(SECRET).digest(), 5, 8, PLAIN, plan)
    assert base != tasks_of_slot(SECRET, 5, 8, PLAIN, replace(plan, policy_version=4))


# -- the audit ----------------------------------------------------------------------------------------------------


def rules_of(environment: EnvironmentSpec) -> PoolSpec:
    return PoolSpec(
        name="p",
        environment=environment,
        tokenizer_digest="b" * 64,
        model_config_digest="c" * 64,
        group_size=2,
        groups_per_slot=4,
        groups_per_batch=4,
        max_staleness=1,
        max_outstanding_groups=8,
        temperature=1.0,
        max_prompt_tokens=8,
        max_completion_tokens=8,
        lease_s=10.0,
        max_attempts=3,
        max_file_bytes=1 << 20,
    )


def test_an_auditor_with_the_secret_finds_tasks_that_somebody_chose() -> None:
    rules = rules_of(MIXED)
    plan = plan_of(*(StratumPlan(weight=1) for _ in MIXED.strata))
    request = LeaseRequest(node="w", policy_version=3, policy_digest="d" * 64)
    lease = write_lease(rules, rules.digest(), SECRET, request, Grant(slot=6, attempt=0), now_ms=1, plan=plan)
    assert lease.curriculum_digest == plan.digest()
    assert lease_problem(rules, SECRET, lease, plan) is None
    first, *others = lease.task_indices
    chosen = replace(lease, task_indices=((first + 1) % 60, *others))
    assert "task_indices of lease 6-0" in (lease_problem(rules, SECRET, chosen, plan) or "")
    assert lease_problem(rules, SECRET, lease, None) is not None
    unnamed = replace(lease, curriculum_digest="")
    assert "curriculum_digest of lease 6-0 is ''" in (lease_problem(rules, SECRET, unnamed, plan) or "")


def test_a_plan_for_other_tasks_is_found_out() -> None:
    named = StratumPlan(weight=1, revisit_permille=1, tasks=(50,), tickets=(1,))
    assert plan_problem(plan_of(named), PLAIN) == "the plan names task 50, the environment has 50"
    assert plan_problem(plan_of(named, named), PLAIN) == "the plan has 2 strata, the environment 1"
    in_b = interleaving_of(MIXED.strata).index_of(1, 0)
    wrong = plan_of(replace(named, tasks=(in_b,)), StratumPlan(weight=1), StratumPlan(weight=1))
    assert plan_problem(wrong, MIXED) == f"the plan names task {in_b} in stratum 0, which does not have it"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"explore_permille": 0}, "explore_permille is 0"),
        ({"explore_permille": 1001}, "at most 1000"),
        ({"strata": ()}, "0 strata"),
        ({"strata": (StratumPlan(weight=0),)}, "total weight of 0"),
        ({"strata": (StratumPlan(weight=1, tasks=tuple(range(4097)), tickets=(1,) * 4097),)}, "plan of 4097 tasks"),
    ],
)
def test_a_plan_is_bounded(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_of(**({"strata": (StratumPlan(weight=1),)} | changes))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tasks": (2, 1), "tickets": (1, 1)}, "ascending"),
        ({"tasks": (1, 1), "tickets": (1, 1)}, "ascending"),
        ({"tasks": (1,), "tickets": ()}, "1 tasks with 0 tickets"),
        ({"tasks": (1,), "tickets": (17,)}, "from 1 to 16"),
        ({"tasks": (1,), "tickets": (0,)}, "from 1 to 16"),
        ({"revisit_permille": 10}, "without tasks"),
        ({"revisit_permille": 1001, "tasks": (1,), "tickets": (1,)}, "at most 1000"),
        ({"weight": -1}, "weight is -1"),
    ],
)
def test_the_parts_of_a_plan_fit_together(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StratumPlan(**({"weight": 1} | values))
