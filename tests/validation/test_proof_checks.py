"""Figures beside thresholds: each limit by itself, in order, and what a verdict tells."""

from typing import Any

import pytest
from msgspec.structs import replace

from farflung.validation.proof_checks import measured, proof_problem, submission_distance
from farflung.wire.proof import DEFAULT_RULES, ProofRules, RolloutFigures, Thresholds
from farflung.wire.verdict import RejectReason

LIMITS = Thresholds(
    activation_chunk=0.03,
    activation_submission=0.02,
    max_margin=0.5,
    mean_margin=0.01,
    max_likeliness=6.0,
    logprob_error=0.3,
)


def figures(**changes: Any) -> RolloutFigures:
    values: dict[str, Any] = {
        "group": 0,
        "sample": 0,
        "num_tokens": 100,
        "activation_chunks": (0.01, 0.01, 0.01, 0.01),
        "max_margin": 0.1,
        "sum_margin": 0.2,
        "num_margins": 3,
        "surprise": -1.0,
        "logprob_error": 0.02,
    }
    return RolloutFigures(**(values | changes))


def test_honest_figures_have_no_problem() -> None:
    assert proof_problem([figures(), figures(sample=1)], LIMITS) is None


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"activation_chunks": (0.01, 0.031)}, RejectReason.ACTIVATIONS, r"\(1, 2\), chunk 1: .* 0.0310"),
        ({"activation_chunks": (0.029,) * 40}, RejectReason.ACTIVATIONS, "over all"),
        ({"max_margin": 0.51}, RejectReason.DRAWS, "0.510 below"),
        ({"sum_margin": 3.0}, RejectReason.DRAWS, "on average"),
        ({"surprise": -6.1}, RejectReason.DRAWS, "likelier .* 6.1"),
        ({"logprob_error": 0.31}, RejectReason.LOGPROBS, "0.310 off"),
    ],
)
def test_each_limit_has_its_reason_and_names_the_value(
    changes: dict[str, Any], reason: RejectReason, words: str
) -> None:
    found = proof_problem([figures(), figures(group=1, sample=2, **changes)], LIMITS)
    assert found is not None
    assert found[0] is reason
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(found[1])


def test_exactly_at_a_limit_is_within_it() -> None:
    at = figures(
        activation_chunks=(0.02,), max_margin=0.5, sum_margin=1.0, surprise=-6.0, logprob_error=0.3
    )  # fmt: skip
    assert proof_problem([at], LIMITS) is None


def test_a_rare_draw_of_a_sure_policy_is_honest() -> None:
    assert proof_problem([figures(surprise=40.0)], LIMITS) is None


def test_another_model_is_named_before_its_draws() -> None:
    found = proof_problem([figures(activation_chunks=(1.2,), max_margin=9.0)], LIMITS)
    assert found is not None
    assert found[0] is RejectReason.ACTIVATIONS


def test_many_small_cheats_add_up_over_a_submission() -> None:
    """W17: each rollout below its limits, all of them together not."""
    each = [figures(sample=sample, sum_margin=1.5, max_margin=0.4) for sample in range(8)]
    assert proof_problem(each, LIMITS) is not None


def test_the_distance_of_a_submission_weighs_chunks_alike() -> None:
    assert submission_distance([figures(activation_chunks=(0.3, 0.0)), figures(activation_chunks=(0.0, 0.0))]) == (
        pytest.approx(0.15)
    )
    assert submission_distance([RolloutFigures.nothing(0, 0)]) == 0.0


def test_rollouts_without_a_token_of_the_models_hold_nothing_against_anybody() -> None:
    assert proof_problem([RolloutFigures.nothing(0, 0)], LIMITS) is None
    assert measured([RolloutFigures.nothing(0, 0)])["proof/max_margin"] == 0.0


def test_slashing_never_begins_before_rejecting() -> None:
    with pytest.raises(ValueError, match="rejected above"):
        ProofRules(reject=LIMITS, slash=replace(LIMITS, max_margin=0.4))
    for name in Thresholds.__struct_fields__:
        assert getattr(DEFAULT_RULES.slash, name) >= getattr(DEFAULT_RULES.reject, name)
