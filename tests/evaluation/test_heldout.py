"""Hand-checked accuracy with an engine whose answers are scripted."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from farflung.engine.base import SamplingParams
from farflung.engine.fake import FakeEngine
from farflung.envs.base import Grade
from farflung.envs.registry import load_environment
from farflung.evaluation.heldout import DRAW_SEED, Evaluation, evaluate, heldout_tasks
from farflung.model.characters import character_tokenizer
from tiny_pool import NUM_HELDOUT_TASKS, description, environment

PARAMS = SamplingParams(temperature=1.0, max_completion_tokens=4, eos_token_ids=(1,), reserved_token_ids=(0, 2))


def prompts() -> list[list[int]]:
    tokenizer = description().tokenizer
    return [tokenizer.encode_chat(task.messages) for task in heldout_tasks(environment(), NUM_HELDOUT_TASKS)]


def answering(answers: Callable[[int], str]) -> FakeEngine:
    """Task number i is answered with `answers(i)`."""
    by_prompt = {tuple(prompt): index for index, prompt in enumerate(prompts())}

    def script(prompt: Sequence[int]) -> Sequence[int]:
        return [*description().tokenizer.encode(answers(by_prompt[tuple(prompt)])), 1]

    engine = FakeEngine(64, script=script)
    engine.load_weights({}, 0)
    return engine


def right(index: int) -> str:
    return environment().task("heldout", index).answer


def measured(engine: Any, num_tasks: int = NUM_HELDOUT_TASKS, env: Any = None) -> Evaluation:
    return evaluate(engine, env or environment(), description().tokenizer, PARAMS, num_tasks=num_tasks)


@pytest.mark.parametrize("num_right", [0, 3, 10])
def test_accuracy_is_the_share_of_tasks_solved(num_right: int) -> None:
    found = measured(answering(lambda index: right(index) if index < num_right else "0>"))
    assert found.accuracy == found.mean_reward == num_right / 10
    assert (found.num_tasks, found.num_ungraded) == (10, 0)
    assert found.mean_length_tokens == 3.0
    assert [rollout.grade.reward for rollout in found.rollouts] == [float(index < num_right) for index in range(10)]
    assert [rollout.task.task_id for rollout in found.rollouts] == [f"heldout/{index}" for index in range(10)]


def test_completions_are_told_without_their_end() -> None:
    found = measured(answering(right), num_tasks=2)
    assert [rollout.completion for rollout in found.rollouts] == [right(0), right(1)]
    assert [rollout.num_tokens for rollout in found.rollouts] == [3, 3]


def test_fewer_tasks_than_asked_for_are_no_error() -> None:
    assert measured(answering(right), num_tasks=10**6).num_tasks == NUM_HELDOUT_TASKS
    assert measured(answering(right), num_tasks=4).num_tasks == 4


def test_the_draws_are_the_same_each_time() -> None:
    """Two policies are compared on the same tasks and noise."""
    seeds: list[bytes] = []
    engine = FakeEngine(64)
    generate = engine.generate

    def watched(requests: Any, params: Any, draw_seed: bytes, **rest: Any) -> Any:
        seeds.append(draw_seed)
        assert [(request.group, request.num_samples) for request in requests] == [(index, 1) for index in range(10)]
        return generate(requests, params, draw_seed, **rest)

    engine.generate = watched  # type: ignore[method-assign]
    engine.load_weights({}, 0)
    first, second = measured(engine), measured(engine)
    assert first == second
    assert len({rollout.completion for rollout in first.rollouts}) > 1
    assert seeds == [DRAW_SEED, DRAW_SEED]
    assert len(DRAW_SEED) == 32


class Grading:
    """The environment with grades by task number."""

    def __init__(self, grades: Callable[[int], Grade]) -> None:
        self._grades = grades

    def __getattr__(self, name: str) -> Any:
        return getattr(environment(), name)

    def grade(self, task: Any, completion: str) -> Grade:
        return self._grades(int(task.task_id.partition("/")[2]))


def test_what_cannot_be_graded_is_neither_right_nor_wrong() -> None:
    env = Grading(lambda index: Grade(reward=None) if index < 6 else Grade(reward=float(index == 9), correct=1.0))
    found = measured(answering(right), env=env)
    assert (found.num_tasks, found.num_ungraded) == (10, 6)
    assert (found.accuracy, found.mean_reward) == (1.0, 0.25)
    nothing = measured(answering(right), env=Grading(lambda _: Grade(reward=None)))
    assert (nothing.accuracy, nothing.num_ungraded) == (0.0, 10)


def test_accuracy_looks_at_the_unshaped_reward_and_falls_back_to_a_full_one() -> None:
    grades = [
        Grade(reward=-0.4, correct=1.0),
        Grade(reward=1.0, correct=0.0),
        Grade(reward=0.0, correct=0.5),
        Grade(reward=1.0),
        Grade(reward=0.99),
    ]
    found = measured(answering(right), num_tasks=5, env=Grading(grades.__getitem__))
    assert found.accuracy == pytest.approx((1 + 0 + 0.5 + 1 + 0) / 5)
    assert found.mean_reward == pytest.approx((-0.4 + 1 + 0 + 1 + 0.99) / 5)


def test_thinking_budgets_come_in_turn() -> None:
    env = load_environment("mod-sum", 0, {"num_digits": 4})
    tasks = heldout_tasks(env, 5)
    assert [task.target_length for task in tasks] == [2, 3, 4, 2, 3]
    alphabet = env.alphabet()
    assert alphabet is not None
    tokenizer = character_tokenizer(alphabet)
    engine = FakeEngine(tokenizer.vocab_size)
    engine.load_weights({}, 0)
    assert evaluate(engine, env, tokenizer, PARAMS, num_tasks=5).num_tasks == 5


def test_held_out_tasks_are_never_training_tasks() -> None:
    train = {environment().task("train", index).messages for index in range(environment().num_tasks)}
    assert not train & {task.messages for task in heldout_tasks(environment(), NUM_HELDOUT_TASKS)}


def test_members_of_a_mixture_have_an_accuracy_each() -> None:
    mixture = load_environment(
        "mixture", seed=0, args={"members": "short=sort-digits, sort-digits", "short.num_digits": 2}
    )
    tasks = heldout_tasks(mixture, 6)
    tokenizer = character_tokenizer(mixture.alphabet() or "")
    answers = {
        tuple(tokenizer.encode_chat(task.messages)): task.answer if task.task_id.startswith("short/") else "0"
        for task in tasks
    }
    engine = FakeEngine(64, script=lambda prompt: [*tokenizer.encode(answers[tuple(prompt)]), 1])
    engine.load_weights({}, 0)
    params = SamplingParams(temperature=1.0, max_completion_tokens=8, eos_token_ids=(1,), reserved_token_ids=(0, 2))
    found = evaluate(engine, mixture, tokenizer, params, num_tasks=6)
    assert found.accuracies == {"short": 1.0, "sort-digits": 0.0}
    assert (found.accuracy, found.lowest_accuracy) == (0.5, 0.0)


def test_without_members_the_lowest_accuracy_is_the_accuracy() -> None:
    found = measured(answering(lambda index: right(index) if index < 3 else "0>"))
    assert (found.accuracies, found.lowest_accuracy) == ({}, 0.3)
