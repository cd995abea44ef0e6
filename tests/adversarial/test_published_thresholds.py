"""Commitments in the published format with the published thresholds: what they tell apart, and what only ours do."""

from collections.abc import Callable, Sequence

import pytest

from farflung.engine.base import Completion
from farflung.model.factory import random_state
from farflung.validation.proof_checks import activations
from farflung.wire.proof import DEFAULT_RULES, RolloutFigures
from sampled_work import CONFIG, bf16, figures, handed_in, per_row_int8, policy, sampled, without_layer

SMALLER, SKIPPED = random_state(CONFIG, 1, std=0.25), without_layer(policy(), 1)
LIMIT = 1.0
"""In units of the published thresholds."""


def published(made: Sequence[Completion]) -> list[RolloutFigures]:
    return figures(handed_in(made, scheme="toploc"), scheme="toploc")


def furthest(found: Sequence[RolloutFigures]) -> float:
    return max(max(each.activation_chunks) for each in found)


def nearest(found: Sequence[RolloutFigures]) -> float:
    return min(min(each.activation_chunks) for each in found)


def test_the_same_computation_agrees_exactly() -> None:
    assert furthest(published(sampled())) == 0.0


@pytest.mark.parametrize(
    "work",
    [lambda: sampled(max_batch_rows=3), lambda: sampled(bf16(policy()))],
    ids=["three rows", "bf16 weights"],
)
def test_honest_work_on_other_hardware_passes(work: Callable[[], list[Completion]]) -> None:
    assert furthest(published(work())) <= LIMIT


@pytest.mark.parametrize(
    "work",
    [lambda: sampled(SMALLER), lambda: sampled(SKIPPED[0], config=SKIPPED[1])],
    ids=["w1 smaller model", "w1 layer skipped"],
)
def test_w1_every_chunk_of_another_model_fails(work: Callable[[], list[Completion]]) -> None:
    assert nearest(published(work())) > LIMIT


def test_w2_int8_weights_pass_there_and_not_here() -> None:
    made = sampled(per_row_int8(policy()))
    assert furthest(published(made)) <= LIMIT
    assert activations(figures(handed_in(made)), DEFAULT_RULES.reject) is not None


def test_w16_how_far_bytes_lie_that_no_model_made_is_told_by_both_schemes() -> None:
    made = sampled()
    assert min(each.least_forgery for each in published(made)) > LIMIT
    zeros = min(each.least_forgery for each in figures(handed_in(made)))
    assert zeros > 10 * DEFAULT_RULES.reject.activation_chunk
