"""Plans: pure, bounded, fair to strata, and made of the tasks that are worth another visit."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rl.curriculum import CurriculumParams, CurriculumState, Observation, StratumStat, TaskStat, observe
from farflung.rl.curriculum_plan import PlanParams, make_plan
from farflung.slots.curriculum import plan_problem
from farflung.slots.strata import interleaving_of
from farflung.wire.curriculum import CurriculumPlan, StratumPlan
from farflung.wire.pool import EnvironmentSpec, PoolSpec, Stratum

TASKS = CurriculumParams()
PARAMS = PlanParams()
PLAIN = EnvironmentSpec(name="sort-digits", num_tasks=10**6)
MIXED = EnvironmentSpec(
    name="mixture",
    num_tasks=300,
    strata=(Stratum(name="a", num_tasks=100, weight=3), Stratum(name="b", num_tasks=200, weight=1)),
)


def rules_of(environment: EnvironmentSpec) -> PoolSpec:
    return PoolSpec(
        name="p",
        environment=environment,
        tokenizer_digest="b" * 64,
        model_config_digest="c" * 64,
        group_size=8,
        groups_per_slot=4,
        groups_per_batch=8,
        max_staleness=1,
        max_outstanding_groups=16,
        temperature=1.0,
        max_prompt_tokens=8,
        max_completion_tokens=8,
        lease_s=10.0,
        max_attempts=3,
        max_file_bytes=1 << 20,
    )


def stratum_of(environment: EnvironmentSpec, task: int) -> int:
    return interleaving_of(environment.strata).locate(task)[0] if environment.strata else 0


def plan_of(
    state: CurriculumState, environment: EnvironmentSpec = PLAIN, version: int = 10, params: PlanParams = PARAMS
) -> CurriculumPlan:
    return make_plan(
        state,
        version=version,
        pool=rules_of(environment),
        stratum_of=lambda task: stratum_of(environment, task),
        tasks=TASKS,
        params=params,
    )


def known(**rates: float) -> CurriculumState:
    """Tasks t1, t2, ... with these rates, last seen at version 0."""
    return CurriculumState(tasks={int(name[1:]): TaskStat(rate, int(rate == 0), 0) for name, rate in rates.items()})


def test_nothing_is_named_before_anything_is_known() -> None:
    assert plan_of(CurriculumState(), version=0) == CurriculumPlan(
        pool_digest=rules_of(PLAIN).digest(),
        policy_version=0,
        explore_permille=250,
        strata=(StratumPlan(weight=1),),
    )


def test_tasks_in_the_band_have_tickets_by_preference_and_mastered_ones_none() -> None:
    (part,) = plan_of(known(t1=0.5, t2=0.125, t3=1.0, t4=0.875, t5=0.95)).strata
    assert (part.tasks, part.tickets) == ((1, 2, 4), (8, 4, 4))


def test_unsolved_tasks_come_back_when_their_pause_is_over() -> None:
    assert plan_of(known(t1=0.0), version=3).strata[0].tasks == ()
    (part,) = plan_of(known(t1=0.0), version=4).strata
    assert (part.tasks, part.tickets) == ((1,), (4,))


def test_few_named_tasks_are_not_asked_for_more_than_about_once_a_batch() -> None:
    assert plan_of(known(t1=0.5, t2=0.5)).strata[0].revisit_permille == 200  # 2 of 8 groups, times 0.8
    many = known(**{f"t{number}": 0.5 for number in range(1, 30)})
    assert plan_of(many).strata[0].revisit_permille == 800


def test_the_most_preferred_come_first_and_of_equals_the_longest_unseen() -> None:
    state = CurriculumState(tasks={1: TaskStat(0.5, 0, 9), 2: TaskStat(0.5, 0, 3), 3: TaskStat(0.25, 0, 0)})
    plan = plan_of(state, params=PlanParams(max_planned_tasks=1))
    assert plan.strata[0].tasks == (2,)


def test_fixed_weights_are_the_pools_and_adaptive_ones_follow_what_there_is_to_learn() -> None:
    state = CurriculumState(strata=(StratumStat(1.0, 0.0, 50), StratumStat(0.5, 1.0, 50)))
    assert [part.weight for part in plan_of(state, MIXED).strata] == [3, 1]
    adaptive = plan_of(state, MIXED, params=PlanParams(weights="adaptive"))
    shares = [part.weight / 1000 for part in adaptive.strata]
    assert shares == [pytest.approx(0.15 / 1.15, abs=1e-3), pytest.approx(1 / 1.15, abs=1e-3)]


rates = st.sampled_from([0.0, 0.125, 0.375, 0.5, 0.875, 1.0])


@given(
    st.lists(st.tuples(st.integers(0, 299), rates), max_size=60),
    st.integers(0, 20),
    st.integers(0, 400),
    st.sampled_from(["fixed", "adaptive"]),
)
def test_every_plan_is_bounded_fits_the_pool_and_leaves_no_stratum_without(
    seen: list[tuple[int, float]], most: int, version: int, weights: Any
) -> None:
    state = CurriculumState(strata=(StratumStat(),) * 2)
    for start in range(0, len(seen), 7):
        batch = [Observation(task, stratum_of(MIXED, task), rate) for task, rate in seen[start : start + 7]]
        state = observe(state, batch, start // 7, TASKS)
    plan = plan_of(state, MIXED, version, PlanParams(max_planned_tasks=most, weights=weights))
    assert plan_problem(plan, MIXED) is None
    assert sum(len(part.tasks) for part in plan.strata) <= most
    assert all(part.weight >= 1 for part in plan.strata)
    assert plan.explore_permille == 250
    assert plan == plan_of(state, MIXED, version, PlanParams(max_planned_tasks=most, weights=weights))
    mastered = {task for task, stat in state.tasks.items() if stat.rate > 0.9}
    assert not mastered & {task for part in plan.strata for task in part.tasks}


def test_the_largest_plan_fits_its_record() -> None:
    tasks = {2**52 + number: TaskStat(0.5, 0, 0) for number in range(5_000)}
    environment = EnvironmentSpec(name="sort-digits", num_tasks=2**53)
    plan = plan_of(CurriculumState(tasks=tasks), environment, params=PlanParams(max_planned_tasks=4096))
    assert CurriculumPlan.from_bytes(plan.to_bytes()) == plan


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"explore_share": 0.0}, "explore_share is 0.0"),
        ({"explore_share": 1.5}, "explore_share is 1.5"),
        ({"revisit_share": 1.5}, "revisit_share 1.5"),
        ({"max_planned_tasks": 4097}, "from 0 to 4096"),
    ],
)
def test_settings_that_would_starve_tasks_or_burst_the_record_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PlanParams(**values)
