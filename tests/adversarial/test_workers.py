"""W1 to W24, each before a whole verdict: the cheat is rejected for the one reason that is meant, its twin accepted.

The pool is proven, its thresholds are the shipped ones. W11 and W25 to W28 are in other files: `docs/threats.md` says
which.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cheats import (
    best_of,
    computed_by,
    cut_short,
    decoder_with_fp8_cache,
    draw,
    exact_speculation,
    likeliest,
    never_ending,
    noisy,
    of_another_sample,
    picked,
    relaxed_acceptance,
    steered,
    teacher_text,
    with_an_answer_in_front,
    within_top_p,
)
from farflung.model.factory import random_state
from farflung.wire.proof import DEFAULT_RULES
from farflung.wire.rollout import Rollout, StopReason
from farflung.wire.verdict import Outcome, RejectReason
from judged_work import POOL, REWARDED, HandedIn, changed, lease_of, published
from sampled_work import (
    CONFIG,
    EOS,
    OTHER_SEED,
    PARAMS,
    bf16,
    fp8,
    handed_in,
    honest,
    per_row_int8,
    policy,
    prefilled,
    sampled,
    without_layer,
)

Cheat = Callable[[], HandedIn]
LIMIT = DEFAULT_RULES.reject.max_margin


def sampled_by(state: Any, **options: Any) -> HandedIn:
    return HandedIn(rows=handed_in(sampled(state, **options)))


def text(tokens: Callable[[Rollout], list[int]]) -> HandedIn:
    """Run through the true policy, with stop reasons that fit."""
    rows = prefilled(honest(), tokens)
    return HandedIn(rows=[replace(row, stop_reason=ending(row)) for row in rows])


def ending(row: Rollout) -> StopReason:
    return StopReason.EOS if row.completion_tokens[-1] in EOS else StopReason.LENGTH


def skipping_a_layer() -> HandedIn:
    state, config = without_layer(policy(), 1)
    return sampled_by(state, config=config)


def with_fp8_cache() -> HandedIn:
    return HandedIn(rows=[computed_by(decoder_with_fp8_cache(), row) for row in honest()])


def with_prompt(row: Rollout, tokens: list[int]) -> list[Rollout]:
    return changed(row.group * 4 + row.sample, prompt_tokens=np.array(tokens, np.int32))


def boundary_moved(by: int) -> HandedIn:
    """Tokens of one row from the completion into the prompt, or the other way."""
    index, row = min(enumerate(honest()), key=lambda found: len(found[1].completion_tokens))
    document = [*row.prompt_tokens.tolist(), *row.completion_tokens.tolist()]
    border = len(row.prompt_tokens) + by
    completion = np.array(document[border:], np.int32)
    logprobs = np.full(len(completion), -1.0, np.float32)
    proof = (row.proof * 2)[: 8 * len(completion)]
    return HandedIn(
        rows=changed(
            index, prompt_tokens=np.array(document[:border], np.int32), completion_tokens=completion, logprobs=logprobs,
            proof=proof,
        )
    )  # fmt: skip


def with_tokens(index: int, tokens: list[int], stop_reason: StopReason) -> HandedIn:
    row = honest()[index]
    logprobs = np.full(len(tokens), -1.0, np.float32)
    completion = np.array(tokens, np.int32)
    proof = (row.proof * len(tokens))[: 8 * len(tokens)]
    return HandedIn(
        rows=changed(index, completion_tokens=completion, logprobs=logprobs, proof=proof, stop_reason=stop_reason)
    )


def with_a_token(token: int) -> HandedIn:
    row = honest()[0]
    tokens = row.completion_tokens.copy()
    tokens[1] = token
    return HandedIn(rows=changed(0, completion_tokens=tokens))


def claiming(**changes: Any) -> HandedIn:
    return HandedIn(changes=changes)


def best_of_eight() -> HandedIn:
    texts = best_of(8, lambda tokens: float(REWARDED in tokens))
    return text(lambda row: texts[row.group, row.sample])


def copied(change: Callable[[list[Rollout]], list[Rollout]] = list) -> HandedIn:
    """Another node's honest work, under a lease of one's own."""
    return HandedIn(rows=change(honest()), lease=lease_of(POOL, draw_seed=OTHER_SEED.hex(), slot=4, lease_id="4-0"))


def one_token_changed(rows: list[Rollout]) -> list[Rollout]:
    tokens = rows[0].completion_tokens.copy()
    tokens[2] = 5 if tokens[2] != 5 else 6
    return [replace(rows[0], completion_tokens=tokens), *rows[1:]]


def proofs(change: Callable[[bytes], bytes]) -> HandedIn:
    return HandedIn(rows=[replace(row, proof=change(row.proof)) for row in honest()])


def toploc_proofs(change: Callable[[bytes], bytes]) -> HandedIn:
    return published([replace(row, proof=change(row.proof)) for row in toploc_rows()])


def toploc_rows() -> list[Rollout]:
    return handed_in(sampled(), scheme="toploc")


def constant_polynomial(proof: bytes) -> bytes:
    """Modulus 65497, first coefficient one plausible value, the others 0, in every chunk."""
    chunk = (65497).to_bytes(2, "big") + (0x4040).to_bytes(2, "big") + bytes(254)
    return chunk * (len(proof) // 258)


def logprobs(change: Callable[[np.ndarray], np.ndarray]) -> HandedIn:
    return HandedIn(rows=[replace(row, logprobs=change(row.logprobs).astype(np.float32)) for row in honest()])


CHEATS: dict[str, tuple[Cheat, RejectReason]] = {
    "w1_a_smaller_model": (lambda: sampled_by(random_state(CONFIG, 1, std=0.25)), RejectReason.ACTIVATIONS),
    "w1_a_layer_skipped": (skipping_a_layer, RejectReason.ACTIVATIONS),
    "w2_int8_weights": (lambda: sampled_by(per_row_int8(policy())), RejectReason.ACTIVATIONS),
    "w2_fp8_weights": (lambda: sampled_by(fp8(policy())), RejectReason.ACTIVATIONS),
    "w2_fp8_cache": (with_fp8_cache, RejectReason.ACTIVATIONS),
    "w3_an_older_version_under_the_newest_lease": (lambda: sampled_by(noisy(0.02)), RejectReason.ACTIVATIONS),
    "w3_rows_that_say_they_are_older": (
        lambda: HandedIn(rows=[replace(row, policy_version=1) for row in honest()]),
        RejectReason.WRONG_LEASE,
    ),
    "w3_another_policy_digest": (lambda: claiming(policy_digest="ab" * 32), RejectReason.WRONG_LEASE),
    "w4_greedy": (lambda: text(lambda row: picked(row, likeliest)), RejectReason.DRAWS),
    "w4_speculation_with_relaxed_acceptance": (
        lambda: text(lambda row: picked(row, relaxed_acceptance)),
        RejectReason.DRAWS,
    ),
    "w4_top_p": (lambda: text(lambda row: picked(row, within_top_p)), RejectReason.DRAWS),
    "w4_cooler": (
        lambda: HandedIn(rows=handed_in(sampled(params=replace(PARAMS, temperature=0.8)))),
        RejectReason.DRAWS,
    ),
    "w4_hotter": (
        lambda: HandedIn(rows=handed_in(sampled(params=replace(PARAMS, temperature=1.25)))),
        RejectReason.DRAWS,
    ),
    "w5_text_of_a_teacher_prefilled": (lambda: text(teacher_text), RejectReason.DRAWS),
    "w6_boundary_moved_forward": (lambda: boundary_moved(2), RejectReason.PROMPT),
    "w6_boundary_moved_back": (lambda: boundary_moved(-1), RejectReason.PROMPT),
    "w6_an_answer_in_front_of_the_completion": (lambda: text(with_an_answer_in_front), RejectReason.DRAWS),
    "w6_an_answer_at_the_end_of_the_prompt": (
        lambda: HandedIn(rows=with_prompt(honest()[0], [*honest()[0].prompt_tokens.tolist(), 10, 11])),
        RejectReason.PROMPT,
    ),
    "w7_stopped_early": (
        lambda: with_tokens(1, honest()[1].completion_tokens[:4].tolist(), StopReason.LENGTH),
        RejectReason.TERMINATION,
    ),
    "w7_stopped_early_with_an_end_that_was_not_drawn": (lambda: text(cut_short), RejectReason.DRAWS),
    "w7_an_end_that_is_none": (
        lambda: with_tokens(1, honest()[1].completion_tokens[:4].tolist(), StopReason.EOS),
        RejectReason.TERMINATION,
    ),
    "w8_padded_to_the_limit": (lambda: text(never_ending), RejectReason.DRAWS),
    "w8_padded_after_the_end": (
        lambda: with_tokens(0, [9, EOS[0], 9, EOS[0]], StopReason.EOS),
        RejectReason.TERMINATION,
    ),
    "w8_longer_than_the_limit": (lambda: with_tokens(0, [9] * 49, StopReason.LENGTH), RejectReason.FOOTER_LIMITS),
    "w8_units_of_none": (lambda: claiming(num_tokens=0), RejectReason.ROLLOUT_COUNT),
    "w8_units_off_by_one": (
        lambda: claiming(num_tokens=1 + sum(len(row.completion_tokens) for row in honest())),
        RejectReason.ROLLOUT_COUNT,
    ),
    "w8_units_beyond_number": (lambda: claiming(num_tokens=2**53 - 1), RejectReason.ROLLOUT_COUNT),
    "w9_an_easier_task": (lambda: HandedIn(rows=changed(2, task_id="train/9")), RejectReason.WRONG_TASK),
    "w9_an_easier_prompt_under_the_tasks_name": (
        lambda: HandedIn(rows=with_prompt(honest()[0], honest()[4].prompt_tokens.tolist())),
        RejectReason.PROMPT,
    ),
    "w9_the_hard_task_left_out": (lambda: HandedIn(rows=honest()[:4]), RejectReason.ROLLOUT_COUNT),
    "w10_best_of_eight_seeds": (best_of_eight, RejectReason.DRAWS),
    "w10_the_best_sample_in_other_places": (lambda: text(of_another_sample), RejectReason.DRAWS),
    "w12_copied": (copied, RejectReason.ACTIVATIONS),
    "w12_copied_with_one_token_changed": (lambda: copied(one_token_changed), RejectReason.ACTIVATIONS),
    "w12_copied_under_the_victims_name": (
        lambda: HandedIn(changes={"node": "0x" + "5" * 40}),
        RejectReason.WRONG_LEASE,
    ),
    "w13_own_rollouts_of_an_earlier_lease": (
        lambda: HandedIn(lease=lease_of(POOL, lease_id="3-1", attempt=1, draw_seed=OTHER_SEED.hex())),
        RejectReason.ACTIVATIONS,
    ),
    "w13_the_claim_of_an_earlier_lease": (
        lambda: HandedIn(changes={"lease_id": "3-0", "attempt": 0}, lease=lease_of(POOL, lease_id="3-1", attempt=1)),
        RejectReason.WRONG_LEASE,
    ),
    "w13_rows_in_another_order": (lambda: HandedIn(rows=honest()[::-1]), RejectReason.ROLLOUT_COUNT),
    "w14_no_proof": (lambda: proofs(lambda proof: b""), RejectReason.PROOF_SHAPE),
    "w14_a_chunk_too_few": (lambda: proofs(lambda proof: proof[:-8]), RejectReason.PROOF_SHAPE),
    "w14_a_chunk_too_many": (lambda: proofs(lambda proof: proof + bytes(8)), RejectReason.PROOF_SHAPE),
    "w14_a_published_chunk_too_few": (lambda: toploc_proofs(lambda proof: proof[:-258]), RejectReason.PROOF_SHAPE),
    "w15_modulus_0": (lambda: toploc_proofs(lambda proof: bytes(2) + proof[2:]), RejectReason.PROOF_SHAPE),
    "w15_modulus_1": (lambda: toploc_proofs(lambda proof: b"\0\1" + proof[2:]), RejectReason.PROOF_SHAPE),
    "w15_null_proof": (lambda: toploc_proofs(lambda proof: bytes(len(proof))), RejectReason.PROOF_SHAPE),
    "w15_modulus_alone": (lambda: toploc_proofs(lambda proof: proof[:2]), RejectReason.PROOF_SHAPE),
    "w16_zeros": (lambda: proofs(lambda proof: bytes(len(proof))), RejectReason.ACTIVATIONS),
    "w16_a_constant": (lambda: proofs(lambda proof: b"\x20" * len(proof)), RejectReason.ACTIVATIONS),
    "w16_proof_of_another_row": (
        lambda: HandedIn(
            rows=[replace(row, proof=(honest()[0].proof * 8)[: len(row.proof)]) for row in honest()]
        ),
        RejectReason.ACTIVATIONS,
    ),
    "w16_a_constant_polynomial": (lambda: toploc_proofs(constant_polynomial), RejectReason.ACTIVATIONS),
    "w17_steered_inside_the_largest_margin": (
        lambda: text(lambda row: picked(row, steered(LIMIT - 0.01))),
        RejectReason.DRAWS,
    ),
    "w18_logprobs_halved": (lambda: logprobs(lambda told: told * 0.5), RejectReason.LOGPROBS),
    "w18_logprobs_of_a_constant": (lambda: logprobs(lambda told: np.full_like(told, -0.7)), RejectReason.LOGPROBS),
    "w18_logprobs_above_0": (lambda: logprobs(lambda told: -told), RejectReason.LOGPROB_RANGE),
    "w18_logprobs_of_minus_10000": (lambda: logprobs(lambda told: told - 1e4), RejectReason.LOGPROB_RANGE),
    "w20_token_minus_1": (lambda: with_a_token(-1), RejectReason.TOKEN_RANGE),
    "w20_token_beyond_the_vocabulary": (lambda: with_a_token(CONFIG.vocab_size), RejectReason.TOKEN_RANGE),
    "w20_token_of_2_to_the_31": (lambda: with_a_token(2**31 - 1), RejectReason.TOKEN_RANGE),
    "w20_a_reserved_token": (lambda: with_a_token(0), RejectReason.TOKEN_RANGE),
    "w20_a_giant_token_in_the_prompt": (
        lambda: HandedIn(rows=with_prompt(honest()[0], [2**31 - 1] * 6)),
        RejectReason.PROMPT,
    ),
    "w22_a_prompt_in_other_tokens": (
        lambda: HandedIn(rows=with_prompt(honest()[0], honest()[0].prompt_tokens.tolist()[::-1])),
        RejectReason.PROMPT,
    ),
}  # fmt: skip

TWINS: dict[str, Cheat] = {
    "itself": HandedIn,
    "w1_w2_honest_bf16_weights": lambda: sampled_by(bf16(policy())),
    "w1_in_small_batches": lambda: sampled_by(None, max_batch_rows=3),
    "w3_weights_that_differ_less_than_rounding": lambda: sampled_by(noisy(1e-4)),
    "w4_exact_speculation": lambda: text(lambda row: picked(row, exact_speculation)),
    "w4_drawn_token_by_token": lambda: text(lambda row: picked(row, draw)),
    "w5_its_own_text_prefilled": lambda: text(lambda row: row.completion_tokens.tolist()),
    "w12_the_victim": HandedIn,
    "w12_the_same_slot_by_another_node": lambda: HandedIn(
        rows=handed_in(sampled(draw_seed=OTHER_SEED), draw_seed=OTHER_SEED),
        lease=lease_of(POOL, draw_seed=OTHER_SEED.hex(), attempt=1, lease_id="3-1"),
    ),
    "w14_w15_published_format": lambda: published(toploc_rows()),
    "w17_a_hair_off": lambda: text(lambda row: picked(row, steered(0.001))),
    "w18_rounding_of_logprobs": lambda: logprobs(lambda told: told.astype(np.float16)),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_rejected_for_the_reason_that_is_meant(name: str) -> None:
    cheat, reason = CHEATS[name]
    judgement = cheat().judged()
    assert judgement.verdict.reason is reason, judgement.evidence.detail
    assert judgement.verdict.outcome is Outcome.REJECTED
    assert judgement.evidence.rewards == (), "nothing is paid"
    assert judgement.evidence.detail


@pytest.mark.parametrize("name", TWINS)
def test_its_honest_twin_is_accepted(name: str) -> None:
    judgement = TWINS[name]().judged()
    assert judgement.verdict.outcome is Outcome.ACCEPTED, judgement.evidence.detail


def test_w19_claimed_rewards_are_worth_nothing() -> None:
    greedy = [replace(row, claimed_reward=1e30) for row in honest()]
    judgement = HandedIn(rows=greedy).judged()
    assert judgement.verdict.outcome is Outcome.ACCEPTED
    assert judgement.evidence.rewards == HandedIn().judged().evidence.rewards
    assert {result.reward for result in judgement.evidence.rewards} <= {0.0, 1.0}
