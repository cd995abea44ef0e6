from dataclasses import replace

import pytest
import torch

from farflung.evaluation.heldout import Evaluation
from farflung.trainer.canary import Canary
from farflung.trainer.config import EvaluationConfig
from tiny_pool import NUM_HELDOUT_TASKS, description, environment, pool_spec, reserved, tiny_policy


def a_canary(every_versions: int = 5, max_accuracy_drop: float = 0.2, num_tasks: int = 512) -> Canary:
    config = EvaluationConfig(
        every_versions=every_versions, max_accuracy_drop=max_accuracy_drop, num_tasks=num_tasks, temperature=1.0
    )
    model = description()
    return Canary(config, model.config, environment(), model.tokenizer, pool_spec(), reserved())


def an_evaluation(accuracy: float, num_tasks: int = 8, num_ungraded: int = 0) -> Evaluation:
    return Evaluation(
        accuracy=accuracy,
        mean_reward=accuracy,
        mean_length_tokens=1.0,
        num_tasks=num_tasks,
        num_ungraded=num_ungraded,
        rollouts=(),
    )


def test_it_is_due_at_the_first_every_n_and_the_last_version() -> None:
    canary = a_canary(every_versions=5)
    assert [version for version in range(13) if canary.is_due(version, 12)] == [0, 5, 10, 12]


def test_the_best_is_remembered() -> None:
    canary = a_canary()
    accepted = [canary.accept(an_evaluation(accuracy)) for accuracy in (0.3, 0.2, 0.3, 0.5, 0.4)]
    assert accepted == [True, False, True, True, False]
    assert canary.best_accuracy == 0.5


@pytest.mark.parametrize(("accuracy", "is_collapse"), [(0.9, False), (0.31, False), (0.29, True), (0.0, True)])
def test_a_collapse_is_a_fall_by_more_than_allowed_below_the_best(accuracy: float, is_collapse: bool) -> None:
    canary = a_canary(max_accuracy_drop=0.2)
    canary.accept(an_evaluation(0.5))
    assert canary.is_collapse(an_evaluation(accuracy, num_tasks=1000)) is is_collapse


@pytest.mark.parametrize(("num_tasks", "is_collapse"), [(10, False), (40, False), (200, True), (1000, True)])
def test_a_fall_on_few_tasks_may_be_chance_and_is_no_collapse(num_tasks: int, is_collapse: bool) -> None:
    """0.5 to 0.29: 4 standard errors are 0.27 at 100 tasks and 0.19 at 200."""
    canary = a_canary(max_accuracy_drop=0.2)
    canary.accept(an_evaluation(0.5))
    assert canary.is_collapse(an_evaluation(0.29, num_tasks=num_tasks)) is is_collapse


def test_by_default_a_policy_that_is_lost_is_caught_and_one_that_wavers_is_not() -> None:
    canary = a_canary(max_accuracy_drop=EvaluationConfig().max_accuracy_drop)
    canary.accept(an_evaluation(0.6, num_tasks=512))
    assert not canary.is_collapse(an_evaluation(0.45, num_tasks=512))
    assert canary.is_collapse(an_evaluation(0.02, num_tasks=512))


def test_a_drop_of_1_turns_it_off() -> None:
    canary = a_canary(max_accuracy_drop=1.0)
    canary.accept(an_evaluation(1.0))
    assert not canary.is_collapse(an_evaluation(0.0, num_tasks=1000))


def test_an_evaluation_that_nobody_could_grade_is_no_collapse() -> None:
    canary = a_canary()
    canary.accept(an_evaluation(1.0))
    assert not canary.is_collapse(an_evaluation(0.0, num_tasks=8, num_ungraded=8))
    assert canary.is_collapse(an_evaluation(0.0, num_tasks=8, num_ungraded=7))


def test_it_measures_what_would_be_published_and_the_same_twice() -> None:
    canary, policy = a_canary(), tiny_policy()
    first = canary.evaluate(policy, 0)
    assert first.num_tasks == NUM_HELDOUT_TASKS
    assert canary.evaluate(policy, 7) == first
    with torch.no_grad():
        for parameter in policy.masters.parameters():
            parameter.add_(parameter.abs() * 2.0**-12)  # lost in bf16: the policy is the same
    unmoved = canary.evaluate(policy, 8)
    assert [rollout.completion for rollout in unmoved.rollouts] == [rollout.completion for rollout in first.rollouts]
    with torch.no_grad():
        policy.masters.embed_tokens.mul_(-3.0)
    moved = canary.evaluate(policy, 9)
    assert [rollout.completion for rollout in moved.rollouts] != [rollout.completion for rollout in first.rollouts]
    assert replace(moved, rollouts=()).num_tasks == NUM_HELDOUT_TASKS
