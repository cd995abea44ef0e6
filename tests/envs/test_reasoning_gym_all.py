"""Every data set of reasoning-gym: it makes tasks of both splits here, the same when loaded anew, or is refused."""

import pytest
from reasoning_gym.factory import DATASETS

from farflung.envs.reasoning_gym import ReasoningGym
from farflung.envs.reasoning_gym_sets import REFUSED
from farflung.envs.reasoning_gym_suite import LEFT_OUT
from farflung.envs.registry import load_environment

SLOW = sorted(LEFT_OUT - set(REFUSED))
"""Seconds a puzzle, or no reference: they are played once, without a second puzzle."""


@pytest.mark.parametrize("dataset", sorted(set(DATASETS) - LEFT_OUT))
def test_a_data_set_makes_tasks_whose_reference_is_right_and_whose_blank_is_wrong(dataset: str) -> None:
    environment = load_environment(f"reasoning-gym:{dataset}", 3, {"num_tasks": 4, "num_heldout_tasks": 2})
    again = load_environment(f"reasoning-gym:{dataset}", 3, {"num_tasks": 4, "num_heldout_tasks": 2})
    for split in ("heldout", "train"):
        task = environment.task(split, 1)
        assert again.task(split, 1) == task
        gold = environment.demonstration(task, 0)
        assert gold is not None
        assert environment.grade(task, gold).reward == 1.0
        assert environment.grade(task, "").reward == 0.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # files that the data sets leave open
@pytest.mark.parametrize("dataset", SLOW)
def test_a_data_set_that_is_slow_or_has_no_reference_makes_tasks_too(dataset: str) -> None:
    environment = ReasoningGym(dataset, 3, {"num_tasks": 1, "num_heldout_tasks": 1})
    task = environment.task("train", 0)
    gold = environment.demonstration(task, 0)
    assert environment.grade(task, "").reward == 0.0
    if gold is not None:
        assert environment.grade(task, gold).reward == 1.0


def test_every_data_set_is_usable_slow_or_refused() -> None:
    assert len(set(DATASETS) - set(REFUSED)) == 83
    assert set(SLOW) <= set(DATASETS)
