"""The verifier's prefill: independent of packing, order and company; episodes skip what the model did not say."""

import base64
from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as with_fields

from farflung.errors import OurFault
from farflung.validator.messages import claimed_row
from farflung.validator.prefill import Claim, claim_of, figures_of
from farflung.wire.lease import Lease
from farflung.wire.proof import RolloutFigures
from farflung.wire.rollout import Rollout
from sampled_work import PREFILL, SEED, figures, handed_in, honest, sampled, verifier


def rounded(found: list[RolloutFigures]) -> list[RolloutFigures]:
    return [
        with_fields(each, logprobs="", surprise=round(each.surprise, 3), logprob_error=round(each.logprob_error, 3))
        for each in found
    ]


@pytest.mark.parametrize("micro_batch_tokens", [1, 64, 100_000])
def test_packing_makes_no_difference(micro_batch_tokens: int) -> None:
    claims = [Claim(rollout=row, spans=((0, len(row.completion_tokens)),), draw_seed=SEED) for row in honest()]
    packed = figures_of(verifier(), claims, replace(PREFILL, micro_batch_tokens=micro_batch_tokens))
    assert rounded(packed) == rounded(figures(honest()))


def test_order_and_company_make_no_difference() -> None:
    rows = honest()
    backwards = figures(rows[::-1])[::-1]
    assert rounded(backwards) == rounded(figures(rows))
    assert rounded(figures(rows[2:3])) == rounded(figures(rows)[2:3])


def test_the_submissions_of_several_slots_share_a_pass() -> None:
    other_seed = bytes(32)
    other = handed_in(sampled(draw_seed=other_seed), draw_seed=other_seed)
    claims = [
        Claim(rollout=row, spans=((0, len(row.completion_tokens)),), draw_seed=seed, slot=slot)
        for slot, (rows, seed) in enumerate([(honest(), SEED), (other, other_seed)])
        for row in rows
    ]
    found = figures_of(verifier(), claims, PREFILL)
    assert all(each.max_margin == 0 for each in found)
    assert rounded(found[: len(honest())]) == rounded(figures(honest()))


def test_between_turns_nothing_is_examined() -> None:
    """The middle of a completion was told: the row's own tokens around it are examined at their own positions."""
    row = honest()[1]
    start, end = 4, 9
    spans = ((0, start), (end, len(row.completion_tokens)))
    kept = np.concatenate([np.arange(0, start), np.arange(end, len(row.completion_tokens))])
    logprobs = row.logprobs.copy()
    logprobs[start:end] = 0.0
    told = replace(row, logprobs=logprobs, proof=b"".join(row.proof[8 * at : 8 * at + 8] for at in kept))
    (found,) = figures_of(verifier(), [Claim(rollout=told, spans=spans, draw_seed=SEED)], PREFILL)
    assert found.num_tokens == len(kept)
    assert found.max_margin == 0
    assert found.logprob_error < 1e-4


def test_a_row_without_a_token_of_the_models_has_no_figures() -> None:
    row = honest()[0]
    (found,) = figures_of(verifier(), [Claim(rollout=row, spans=(), draw_seed=SEED)], PREFILL)
    assert found == RolloutFigures.nothing(row.group, row.sample)


def test_rows_survive_the_pipe_of_the_judging_process() -> None:
    lease = Lease(
        pool_digest="a" * 64,
        lease_id="0-0",
        slot=0,
        attempt=0,
        node="w",
        policy_version=0,
        policy_digest="b" * 64,
        task_indices=(0, 1),
        target_lengths=(0, 0),
        draw_seed=SEED.hex(),
        capability_class="any",
        issued_at_ms=0,
        expires_at_ms=1,
    )
    claims = [claim_of(claimed_row(row, ((0, len(row.completion_tokens)),)), lease) for row in honest()]
    assert rounded(figures_of(verifier(), claims, PREFILL)) == rounded(figures(honest()))
    broken = claimed_row(honest()[0], ((0, 1),))
    with pytest.raises(OurFault, match="a row that is none"):
        claim_of(with_fields(broken, logprobs=broken.logprobs[:-4]), lease)


def test_the_behaviour_logprobs_are_told_token_by_token() -> None:
    row: Rollout = honest()[2]
    (found,) = figures([row])
    told = np.frombuffer(base64.b64decode(found.logprobs), dtype="<f4")
    assert np.allclose(told, row.logprobs, atol=1e-4)
