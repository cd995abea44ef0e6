"""What is remembered of tasks: rates by hand, bands, growing pauses, bounded memory, and the way into checkpoints."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rl.curriculum import (
    MAX_UNSOLVED,
    CurriculumParams,
    CurriculumState,
    Observation,
    StratumStat,
    TaskStat,
    is_due,
    observations,
    observe,
    preference,
    solve_rate,
)
from farflung.rl.curriculum_snapshot import from_snapshot, to_snapshot
from farflung.rl.types import RolloutGroup
from farflung.wire.rollout import Rollout, StopReason

PARAMS = CurriculumParams()

seen = st.lists(
    st.builds(Observation, st.integers(0, 2**53), st.integers(0, 2), st.sampled_from([0.0, 0.125, 0.5, 0.875, 1.0])),
    max_size=12,
)


def group(
    rewards: tuple[float | None, ...], correct: tuple[float | None, ...] | None = None, task_index: int | None = 7
) -> RolloutGroup:
    rollout = Rollout(
        env="toy",
        task_id="0",
        group=0,
        sample=0,
        prompt_tokens=np.array([1], dtype=np.int32),
        completion_tokens=np.array([2], dtype=np.int32),
        logprobs=np.array([-0.1], dtype=np.float32),
        stop_reason=StopReason.EOS,
        policy_version=0,
    )
    return RolloutGroup(
        slot=0,
        group=0,
        task_id="0",
        rollouts=(rollout,) * len(rewards),
        rewards=rewards,
        correct=(None,) * len(rewards) if correct is None else correct,
        task_index=task_index,
    )


def after(*rates: float, params: CurriculumParams = PARAMS, task: int = 7) -> TaskStat:
    """A task whose groups had these rates, at versions 0, 1, ..."""
    state = CurriculumState()
    for version, rate in enumerate(rates):
        state = observe(state, [Observation(task, 0, rate)], version, params)
    return state.tasks[task]


@pytest.mark.parametrize(
    ("rewards", "correct", "rate"),
    [
        ((1.0, 0.0, 0.0, 1.0), None, 0.5),
        ((0.9, 0.4), (1.0, 0.0), 0.5),
        ((1.0, None, 0.0, None), None, 0.5),
        ((2.0, 0.99, 1.0, -1.0), None, 0.5),
        ((0.0, 0.0), (2.0, -1.0), 0.5),
        ((None, None), (1.0, 1.0), None),
        ((float("nan"), 1.0), None, 1.0),
    ],
)
def test_a_solve_rate_is_the_share_that_was_right(
    rewards: tuple[float | None, ...], correct: tuple[float | None, ...] | None, rate: float | None
) -> None:
    assert solve_rate(group(rewards, correct)) == rate


def test_groups_without_a_grade_or_a_known_task_say_nothing() -> None:
    groups = [group((1.0, 0.0)), group((None, None)), group((1.0, 0.0), task_index=None)]
    assert observations(groups, lambda task: task - 5) == [Observation(7, 2, 0.5)]


def test_a_rate_is_the_first_one_and_then_moves_half_way() -> None:
    assert after(0.5).rate == 0.5
    assert after(0.5, 1.0).rate == 0.75
    assert after(0.5, 1.0, 0.25) == TaskStat(0.5, 0, 2)
    assert after(0.5, 1.0, params=CurriculumParams(smoothing=0.0)).rate == 1.0


@pytest.mark.parametrize(
    ("target", "rate", "expected"),
    [(0.5, 0.5, 1.0), (0.5, 0.25, 0.75), (0.5, 0.125, 0.4375), (0.5, 0.95, 0.0), (0.5, 0.0, 0.0), (0.25, 0.25, 1.0)],
)
def test_preference_is_the_formulas(target: float, rate: float, expected: float) -> None:
    assert preference(rate, CurriculumParams(target=target)) == pytest.approx(expected, abs=1e-12)


@given(st.floats(0.05, 0.95), st.floats(0, 1))
def test_no_rate_is_preferred_to_the_target(target: float, rate: float) -> None:
    params = CurriculumParams(target=target, band=0.9)
    assert 0 <= preference(rate, params) <= preference(target, params) + 1e-12 == pytest.approx(1.0)


def test_an_unsolved_task_is_due_after_pauses_that_double_up_to_a_limit() -> None:
    params = CurriculumParams(retry_after=3, max_retry_after=20)
    for num_failures, pause in ((1, 3), (2, 6), (3, 12), (4, 20), (9, 20)):
        stat = after(*[0.0] * num_failures, params=params)
        last = num_failures - 1
        assert not is_due(stat, last + pause - 1, params)
        assert is_due(stat, last + pause, params)


def test_a_right_rollout_ends_the_retries() -> None:
    stat = after(0.0, 0.0, 0.125)
    assert stat.num_unsolved == 0
    assert not is_due(stat, 10_000, PARAMS)


def test_a_task_in_the_band_that_failed_once_is_not_retried_but_sought() -> None:
    stat = after(0.5, 0.0)
    assert (stat.rate, stat.num_unsolved) == (0.25, 1)
    assert not is_due(stat, 10_000, PARAMS)
    assert preference(stat.rate, PARAMS) > 0


def test_failures_are_counted_up_to_a_bound() -> None:
    assert after(*[0.0] * 40).num_unsolved == MAX_UNSOLVED


def test_a_stratum_remembers_the_mean_rate_and_what_there_is_to_learn() -> None:
    state = CurriculumState(strata=(StratumStat(), StratumStat()))
    assert state.strata[1].value == 1.0
    state = observe(state, [Observation(1, 1, 0.0), Observation(2, 1, 0.5)], 0, PARAMS)
    assert state.strata == (StratumStat(), StratumStat(pytest.approx(0.025), pytest.approx(0.05), 2))


# -- bounds ---------------------------------------------------------------------------------------------------------


def test_what_is_mastered_is_forgotten_first_then_the_hopeless_then_the_longest_unseen() -> None:
    params = CurriculumParams(max_tracked_tasks=3)
    state = CurriculumState()
    for version, (task, rate) in enumerate([(1, 0.5), (2, 0.0), (3, 1.0), (4, 0.5), (5, 0.5), (6, 0.5)]):
        state = observe(state, [Observation(task, 0, rate)], version, params)
    assert sorted(state.tasks) == [4, 5, 6]
    early = observe(CurriculumState(), [Observation(t, 0, r) for t, r in ((1, 0.5), (2, 0.0), (3, 1.0))], 0, params)
    assert sorted(observe(early, [Observation(4, 0, 0.5)], 1, params).tasks) == [1, 2, 4]


@given(st.lists(seen, max_size=8), st.integers(1, 5))
def test_memory_is_bounded_whatever_is_observed(batches: list[list[Observation]], most: int) -> None:
    params = CurriculumParams(max_tracked_tasks=most)
    state = CurriculumState(strata=(StratumStat(),) * 3)
    for version, batch in enumerate(batches):
        state = observe(state, batch, version, params)
        assert len(state.tasks) <= most
        assert all(0 <= stat.rate <= 1 for stat in state.tasks.values())


def test_a_million_tasks_leave_ten_thousand_remembered() -> None:
    state = CurriculumState()
    for version in range(10):
        batch = [Observation(100_000 * version + number, 0, (number % 9) / 8) for number in range(2_500)]
        state = observe(state, batch, version, PARAMS)
    assert len(state.tasks) == 10_000
    assert len(json.dumps(to_snapshot(state))) < 300_000


def test_observing_leaves_the_state_before_as_it_was() -> None:
    before = observe(CurriculumState(), [Observation(1, 0, 0.5)], 0, PARAMS)
    observe(before, [Observation(1, 0, 1.0), Observation(2, 0, 1.0)], 1, PARAMS)
    assert before.tasks == {1: TaskStat(0.5, 0, 0)}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"target": 0.0}, "target is 0.0"),
        ({"target": 1.0}, "target is 1.0"),
        ({"band": 0.0}, "band is 0.0"),
        ({"smoothing": 1.0}, "smoothing 1.0"),
        ({"retry_after": 0}, "retry_after is 0"),
        ({"retry_after": 9, "max_retry_after": 8}, "no larger than the second"),
        ({"max_tracked_tasks": 0}, "max_tracked_tasks 0"),
    ],
)
def test_settings_without_meaning_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CurriculumParams(**values)


# -- checkpoint -----------------------------------------------------------------------------------------------------


@given(st.lists(seen, max_size=6))
def test_a_state_comes_back_from_json_bit_for_bit(batches: list[list[Observation]]) -> None:
    state = CurriculumState(strata=(StratumStat(),) * 3)
    for version, batch in enumerate(batches):
        state = observe(state, batch, version, PARAMS)
    again = from_snapshot(json.loads(json.dumps(to_snapshot(state))), 3)
    assert again == state
    assert [stat.rate.hex() for _, stat in sorted(again.tasks.items())] == [
        stat.rate.hex() for _, stat in sorted(state.tasks.items())
    ]
    assert to_snapshot(again) == to_snapshot(state)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "format 2: this version reads 1"),
        ({"rates": ""}, "equally many of each"),
        ({"rates": "AAAAAAAA8L8AAAAAAADgPw=="}, r"rates outside \[0, 1\]"),
        ({"tasks": "AgAAAAAAAAABAAAAAAAAAA=="}, "do not ascend"),
        ({"tasks": "!"}, "column tasks of the curriculum is damaged"),
        ({"tasks": 3}, "column tasks of the curriculum is no text"),
        ({"tasks": "A" * 2_000_000}, "longer than"),
        ({"strata": []}, "there are 1"),
        ({"strata": [[0.5, 2.0, 1]]}, r"rate and value in \[0, 1\]"),
        ({"strata": [[0.5, "x", 1]]}, "a rate, a value and a count"),
    ],
)
def test_a_damaged_snapshot_is_refused(changes: dict[str, Any], message: str) -> None:
    state = observe(CurriculumState(), [Observation(1, 0, 0.5), Observation(2, 0, 0.5)], 0, PARAMS)
    with pytest.raises(ValueError, match=message):
        from_snapshot(to_snapshot(state) | changes, 1)
