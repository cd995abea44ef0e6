"""The dear check: a rollout comes out of its draw seed again, token by token, or it is told where it does not."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as with_fields

from farflung.validation.proof_checks import AUDITED, measured, proof_problem
from farflung.validator.prefill import Claim
from farflung.validator.sampling_again import sample_again
from farflung.wire.proof import DEFAULT_RULES, Resampled, RolloutFigures
from farflung.wire.rollout import Rollout
from farflung.wire.verdict import RejectReason
from sampled_work import EOS, OTHER_SEED, PREFILL, SEED, bf16, figures, handed_in, honest, policy, sampled, verifier


def again(row: Rollout, *, draw_seed: bytes = SEED, spans: Sequence[tuple[int, int]] = ()) -> Resampled:
    whole = ((0, len(row.completion_tokens)),)
    claim = Claim(rollout=row, spans=tuple(spans) or whole, draw_seed=draw_seed)
    return sample_again(verifier(), claim, PREFILL, EOS)


def test_honest_rollouts_come_out_token_for_token() -> None:
    for row in honest():
        assert again(row) == Resampled(num_tokens=len(row.completion_tokens), num_differences=0, max_margin=0.0)


def test_one_changed_token_is_found_with_its_margin_and_the_rest_is_still_compared() -> None:
    row = max(honest(), key=lambda each: len(each.completion_tokens))
    tokens = row.completion_tokens.copy()
    tokens[5] = 4 if tokens[5] != 4 else 5
    changed = replace(row, completion_tokens=tokens)
    found = again(changed)
    assert found.num_differences >= 1
    (figure,) = figures([changed])
    assert found.max_margin == pytest.approx(figure.max_margin, abs=1e-3), "both ways through the model agree"
    assert found.num_differences == figure.num_margins


def test_text_of_other_draws_differs_nearly_everywhere_and_comparing_ends_early() -> None:
    row = max(handed_in(sampled(draw_seed=OTHER_SEED)), key=lambda each: len(each.completion_tokens))
    found = again(row)
    assert found.num_differences > 3
    assert found.max_margin > DEFAULT_RULES.reject.max_margin


def test_rounded_weights_differ_seldom_and_by_little() -> None:
    """The adjacent honest twin: another machine's digits."""
    rows = handed_in(sampled(bf16(policy())))
    found = [again(row) for row in rows]
    num_tokens = sum(each.num_tokens for each in found)
    assert sum(each.num_differences for each in found) <= 0.05 * num_tokens
    assert max(each.max_margin for each in found) < DEFAULT_RULES.reject.max_margin


def test_a_text_that_was_cut_short_or_goes_on_after_its_end_is_found() -> None:
    row = max(honest(), key=lambda each: len(each.completion_tokens))
    cut = np.append(row.completion_tokens[:6], np.int32(EOS[0]))
    found = again(replace(row, completion_tokens=cut, logprobs=row.logprobs[:7]))
    assert (found.num_tokens, found.num_differences) == (7, 1)


def test_what_was_told_between_turns_is_not_compared_and_draws_go_on_at_their_places() -> None:
    row = max(honest(), key=lambda each: len(each.completion_tokens))
    end = len(row.completion_tokens)
    found = again(row, spans=((0, 5), (9, end)))
    assert found == Resampled(num_tokens=end - 4, num_differences=0, max_margin=0.0)


def with_audit(margin: float) -> list[RolloutFigures]:
    made = figures(honest())
    resampled = Resampled(num_tokens=9, num_differences=1, max_margin=margin)
    made[2] = with_fields(made[2], resampled=resampled)
    return made


def test_a_verdict_tells_of_the_audit_and_rejects_what_lies_beyond_the_threshold() -> None:
    limits = DEFAULT_RULES.reject
    assert proof_problem(with_audit(limits.max_margin), limits) is None
    told = measured(with_audit(0.25))
    assert (told[AUDITED], told["audit/num_differences"], told["audit/max_margin"]) == (2.0, 1.0, 0.25)
    problem = proof_problem(with_audit(limits.max_margin + 0.01), limits)
    assert problem is not None
    assert problem[0] is RejectReason.REGENERATION
    assert AUDITED not in measured(figures(honest()))
