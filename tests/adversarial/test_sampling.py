"""Which check sees what of the ways not to sample: by the threat's number, and row by row.

Whole verdicts are in `test_workers.py`.
Thresholds are the shipped ones, which let honest bf16 beside float32 pass.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from benchmarks.steering import bits_per_token, gaps_of

from cheats import (
    cut_short,
    likeliest,
    never_ending,
    noisy,
    of_another_sample,
    picked,
    steered,
    teacher_text,
    with_an_answer_in_front,
)
from farflung.model.factory import random_state
from farflung.proofs.shape import shape_problem
from farflung.validation.proof_checks import activations, draws, logprobs, mean_margin, proof_problem
from farflung.wire.proof import DEFAULT_RULES
from farflung.wire.rollout import Rollout
from farflung.wire.verdict import RejectReason
from sampled_work import (
    CONFIG,
    OTHER_SEED,
    PARAMS,
    RESERVED,
    SEED,
    decoder_of,
    figures,
    fp8,
    handed_in,
    honest,
    per_row_int8,
    policy,
    prefilled,
    sampled,
    verifier,
    without_layer,
)

LIMITS, WIDE = DEFAULT_RULES.reject, DEFAULT_RULES.slash


COMPUTED_OTHERWISE: dict[str, Callable[[], list[Rollout]]] = {
    "w1_smaller_model": lambda: handed_in(sampled(random_state(CONFIG, 1, std=0.25))),
    "w1_layer_skipped": lambda: handed_in(sampled(without_layer(policy(), 1)[0], config=without_layer(policy(), 1)[1])),
    "w2_int8_weights": lambda: handed_in(sampled(per_row_int8(policy()))),
    "w2_fp8_weights": lambda: handed_in(sampled(fp8(policy()))),
    "w3_much_older_version": lambda: handed_in(sampled(noisy(0.02))),
    "w12_copied_from_another_slot": lambda: handed_in(sampled(draw_seed=OTHER_SEED), draw_seed=OTHER_SEED),
    "w13_own_old_rollouts": lambda: handed_in(sampled(noisy(0.05), draw_seed=OTHER_SEED), draw_seed=OTHER_SEED),
    "w16_constant_states": lambda: [replace(row, proof=b"\x20" * len(row.proof)) for row in honest()],
    "w16_zeros": lambda: [replace(row, proof=bytes(len(row.proof))) for row in honest()],
    "w16_proof_another_row": lambda: [
        replace(row, proof=(honest()[0].proof * 8)[: len(row.proof)]) if number else row
        for number, row in enumerate(honest())
    ],
}
NOT_DRAWN: dict[str, Callable[[], list[Rollout]]] = {
    "w4_greedy": lambda: prefilled(honest(), lambda row: picked(row, likeliest)),
    "w5_teacher_text": lambda: prefilled(honest(), teacher_text),
    "w6_answer_in_front": lambda: prefilled(honest(), with_an_answer_in_front),
    "w7_cut_short": lambda: prefilled(honest(), cut_short),
    "w8_padded_to_the_limit": lambda: prefilled(honest(), never_ending),
    "w10_another_seed": lambda: prefilled_with(OTHER_SEED),
    "w10_samples_exchanged": lambda: prefilled(honest(), of_another_sample),
    "temperature_below": lambda: handed_in(sampled(params=replace(PARAMS, temperature=0.8))),
    "temperature_above": lambda: handed_in(sampled(params=replace(PARAMS, temperature=1.25))),
}


def prefilled_with(draw_seed: bytes) -> list[Rollout]:
    """The best of several tries: drawn with the true policy and noise of one's own."""
    texts = {(each.group, each.sample): each.tokens.tolist() for each in sampled(draw_seed=draw_seed)}
    return prefilled(honest(), lambda row: texts[row.group, row.sample])


@cache
def made(name: str) -> tuple[Rollout, ...]:
    return tuple((COMPUTED_OTHERWISE | NOT_DRAWN)[name]())


@pytest.mark.parametrize("cheat", NOT_DRAWN)
def test_what_was_not_drawn_is_caught_by_its_draws_alone(cheat: str) -> None:
    """The states are true: the text was run through the policy."""
    measured = figures(made(cheat))
    assert activations(measured, LIMITS) is None
    assert draws(measured, LIMITS) is not None


@pytest.mark.parametrize("cheat", [*COMPUTED_OTHERWISE, *NOT_DRAWN])
def test_each_of_them_is_caught_on_every_slot(cheat: str) -> None:
    """Not one of its rows slips through alone, except those that the cheat happened to leave as drawn."""
    rows = made(cheat)
    true = {(row.group, row.sample): row for row in honest()}
    changed = [
        row
        for row in rows
        if not np.array_equal(row.completion_tokens, true[row.group, row.sample].completion_tokens)
        or row.proof != true[row.group, row.sample].proof
    ]
    assert len(changed) >= 4, "a cheat that changes nothing"
    missed = [row for row in changed if proof_problem(figures([row]), LIMITS) is None]
    assert len(missed) <= len(changed) // 4, "most single rollouts give it away, and a slot has several"


@pytest.mark.parametrize(
    "claimed",
    [
        lambda logprobs_T: logprobs_T * 0.5,
        lambda logprobs_T: np.full_like(logprobs_T, -0.7),
        lambda logprobs_T: logprobs_T - 0.5,
        lambda logprobs_T: np.roll(logprobs_T, 1),
    ],
    ids=["halved", "constant", "shifted", "rolled"],
)
def test_w18_fake_logprobs_are_caught_by_nothing_else(claimed: Callable[[np.ndarray], np.ndarray]) -> None:
    rows = [replace(row, logprobs=claimed(row.logprobs).astype(np.float32)) for row in honest()]
    measured = figures(rows)
    assert activations(measured, LIMITS) is None
    assert draws(measured, LIMITS) is None
    assert logprobs(measured, LIMITS) is not None


def test_w18_what_is_learned_from_are_the_verifiers_logprobs_in_any_case() -> None:
    rows = [replace(row, logprobs=row.logprobs * 0.5) for row in honest()]
    assert [each.logprobs for each in figures(rows)] == [each.logprobs for each in figures(honest())]


@pytest.mark.parametrize("cut", [1, 8, 256])
def test_w14_w15_a_proof_another_length_never_reaches_arithmetic(cut: int) -> None:
    row = honest()[0]
    for proof in (row.proof[:-cut], row.proof + b"\0" * cut, b""):
        assert shape_problem("sketch", proof, len(row.completion_tokens)) is not None


def test_w17_steering_inside_the_tolerance_is_bounded_by_the_mean() -> None:
    """Wherever another token lies within the largest margin it is taken: not one is too far, all of them are."""
    rows = prefilled(honest(), lambda row: picked(row, steered(LIMITS.max_margin - 0.01)))
    measured = figures(rows)
    assert max(each.max_margin for each in measured) <= LIMITS.max_margin
    assert mean_margin(measured) > LIMITS.mean_margin
    found = proof_problem(measured, LIMITS)
    assert found is not None
    assert found[0] is RejectReason.DRAWS


def test_w17_the_mean_margin_leaves_a_fraction_of_the_choices_that_the_largest_does() -> None:
    """How many completions could be handed in in place of one, in bits: a bound, so at least what is counted below."""
    rows = honest()
    gaps = gaps_of(verifier(), rows, SEED, RESERVED, LIMITS.max_margin)
    free, bounded = bits_per_token(gaps), bits_per_token(gaps, LIMITS.mean_margin)
    assert free > 0.2, "a cheat could choose at most positions, if nothing else was looked at"
    assert bounded < free / 2
    # What steering by a twentieth finds, which passes: one other token in each position that has one.
    passing = sum(bool(((each > 0) & (each <= 0.05)).any()) for each in gaps)
    assert passing / len(gaps) < bounded


def test_w3_an_update_far_below_the_noise_passes_and_does_no_harm() -> None:
    """What is learned from are the logprobs of the version that was asked for."""
    rows = handed_in(sampled(noisy(1e-4)))
    measured = figures(rows)
    assert proof_problem(measured, LIMITS) is None
    other = figures(rows, decoder=decoder_of(noisy(1e-4)))
    assert [each.logprobs for each in measured] != [each.logprobs for each in other]


def test_between_the_thresholds_nobody_is_slashed() -> None:
    measured = figures(handed_in(sampled(noisy(0.012))))
    assert proof_problem(measured, LIMITS) is not None
    assert proof_problem(measured, WIDE) is None


@pytest.mark.parametrize("cheat", ["w1_smaller_model", "w1_layer_skipped", "w16_constant_states"])
def test_plain_fraud_is_beyond_the_wider_thresholds(cheat: str) -> None:
    assert proof_problem(figures(made(cheat)), WIDE) is not None


@pytest.mark.parametrize("cheat", ["w5_teacher_text", "w7_cut_short", "w10_another_seed"])
def test_text_that_was_not_drawn_is_beyond_the_wider_thresholds(cheat: str) -> None:
    assert proof_problem(figures(made(cheat)), WIDE) is not None
