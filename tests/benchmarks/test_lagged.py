"""Runs of a seed differ in nothing but what is compared, and weights are exactly as old as the schedule says."""

from pathlib import Path

import pytest
from benchmarks.lagged import Lab, SlotUse, Task, constant_lag

from farflung.trainer.config import ObjectiveConfig, WarmStartConfig

TINY = Task(
    env="sort-digits",
    args={"num_digits": 2},
    warm_start=WarmStartConfig(max_steps=20, batch_size=16, target_accuracy=1.0, eval_every_steps=20),
    max_prompt_tokens=8,
    max_completion_tokens=4,
    groups_per_batch=4,
    num_versions=6,
    lr=5e-3,
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(TINY, seed=3, cache=tmp_path_factory.mktemp("warm-starts"))


def test_a_batch_is_sampled_by_the_version_that_lies_back_by_the_lag() -> None:
    assert [uses[0].version for uses in constant_lag(2, 6)] == [0, 0, 0, 1, 2, 3]
    assert [uses[0].slot for uses in constant_lag(2, 6)] == [0, 1, 2, 3, 4, 5]


def test_the_same_run_twice_is_the_same_to_the_last_bit(lab: Lab) -> None:
    first, second = (lab.run(constant_lag(2, 6), ObjectiveConfig()) for _ in range(2))
    assert first == second


def test_without_learning_the_lag_makes_no_difference_since_tasks_and_draws_are_paired(lab: Lab) -> None:
    still = [lab.run(constant_lag(lag, 6), ObjectiveConfig(), lr=0.0) for lag in (0, 3)]
    assert still[0].rewards == still[1].rewards
    assert still[0].accuracy == still[1].accuracy == still[0].initial


def test_with_learning_lagged_batches_repeat_the_first_version_and_then_differ(lab: Lab) -> None:
    fresh, lagged, still = (
        lab.run(constant_lag(lag, 6), ObjectiveConfig(), lr=lr) for lag, lr in ((0, 2e-2), (3, 2e-2), (0, 0.0))
    )
    assert lagged.rewards[:4] == still.rewards[:4]
    assert fresh.rewards[1:4] != still.rewards[1:4]
    assert (lagged.mean_staleness, lagged.max_staleness) == ((0 + 1 + 2 + 3 + 3 + 3) / 6, 3)


def test_a_batch_may_mix_versions(lab: Lab) -> None:
    schedule = [[SlotUse(slot=0, version=0), SlotUse(slot=1, version=0)]]
    schedule += [[SlotUse(slot=2, version=0), SlotUse(slot=3, version=1)]]
    outcome = lab.run(schedule, ObjectiveConfig())
    assert [metrics["staleness/mean"] for metrics in outcome.metrics] == [0.0, 0.5]


def test_the_warm_start_is_made_once_per_task_and_seed(lab: Lab, tmp_path: Path) -> None:
    start = Lab(TINY, seed=3, cache=tmp_path).start
    again = Lab(TINY, seed=3, cache=tmp_path).start
    other = Lab(TINY, seed=4, cache=tmp_path).start
    assert len(list(tmp_path.iterdir())) == 2
    assert all(start[name].equal(again[name]) and start[name].equal(lab.start[name]) for name in start)
    assert not all(start[name].equal(other[name]) for name in start)
