"""Wrong references among right ones (E2)."""

import random

import pytest

from farflung.evaluation.records import SampleRow
from farflung.evaluation.suspects import suspects

NUM_SAMPLES = 16


def row(task: int, sample: int, answer: str, gold: str) -> SampleRow:
    return SampleRow(
        task=task,
        sample=sample,
        task_id=f"train/{task}",
        completion=f"<think>hm</think>So \\boxed{{{answer}}}.",
        num_tokens=5,
        is_truncated=False,
        reward=float(answer == gold),
        correct=float(answer == gold),
    )


def sampled(answers: list[str], gold: str, task: int = 0) -> list[SampleRow]:
    return [row(task, sample, answer, gold) for sample, answer in enumerate(answers)]


@pytest.mark.parametrize("seed", range(3))
def test_one_flipped_reference_in_a_hundred_is_found_and_hard_tasks_are_not(seed: int) -> None:
    """Some tasks are easy for the model, some it cannot do: then its answers are all over the place."""
    rng = random.Random(seed)
    flipped = set(rng.sample(range(300), 3))
    rows: list[SampleRow] = []
    for task in range(300):
        skill = 0.9 if task in flipped or rng.random() < 0.7 else 0.0
        right = str(rng.randrange(100))
        gold = str(int(right) + 1) if task in flipped else right
        answers = [right if rng.random() < skill else str(rng.randrange(200, 300)) for _ in range(NUM_SAMPLES)]
        rows += sampled(answers, gold, task)
    assert {suspect.task_id for suspect in suspects(rows)} == {f"train/{task}" for task in flipped}


def test_a_task_that_is_solved_once_or_cannot_be_graded_is_none() -> None:
    assert suspects(sampled(["4"] * 7 + ["5"], "5")) == []
    ungraded = [row(0, n, "4", "5") for n in range(7)]
    unknown = SampleRow(
        task=0, sample=7, task_id="train/0", completion="", num_tokens=0, is_truncated=False, reward=None, correct=None
    )
    assert suspects([*ungraded, unknown]) == []


def test_few_samples_and_answers_without_a_mark_say_nothing() -> None:
    assert suspects(sampled(["4"] * 3, "5")) == []
    assert suspects(sampled([""] * 8, "5")) == []


def test_what_they_agree_on_is_told_in_one_spelling_and_the_most_agreement_first() -> None:
    rows = [*sampled(["X y"] * 3 + ["xY"] * 3 + ["1", "2"], "5", 0), *sampled(["7"] * 8, "5", 1)]
    assert [(each.task_id, each.answer, each.num_agreeing) for each in suspects(rows)] == [
        ("train/1", "7", 8),
        ("train/0", "xy", 6),
    ]
