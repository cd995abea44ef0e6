"""Planted files: spoiled in exactly one way, readable, and what a verdict on one says about its validator."""

from dataclasses import replace

import numpy as np
import pytest

from farflung.errors import PeerFault
from farflung.validation.ringers import kinds_for, ringer_fault, spoiled, spoiled_file
from farflung.wire.lease import Lease
from farflung.wire.panel import FaultKind, Ringer, RingerKind
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import read_rollouts, write_rollouts
from farflung.wire.submission import Submission
from farflung.wire.verdict import RejectReason, RewardResult
from panel_votes import vote
from sampled_work import figures, honest

POOL = "a" * 64
RNG_SEED = 4


def rng() -> np.random.Generator:
    return np.random.default_rng(RNG_SEED)


def changed_fields(before: list[Rollout], after: list[Rollout]) -> set[str]:
    names = set(Rollout.__dataclass_fields__)
    return {
        name
        for name in names
        for old, new in zip(before, after, strict=True)
        if not np.array_equal(np.asarray(getattr(old, name)), np.asarray(getattr(new, name)))
    }


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (RingerKind.TOKENS, {"completion_tokens"}),
        (RingerKind.PROOF, {"proof"}),
        (RingerKind.CLAIMS, {"claimed_reward"}),
        (RingerKind.OTHER_SLOT, set()),
        (RingerKind.OTHER_DRAWS, set()),
    ],
)
def test_a_planted_file_differs_in_one_way_and_still_reads(kind: RingerKind, fields: set[str]) -> None:
    rows = honest()
    data, claims = spoiled_file(write_rollouts(rows, POOL), kind, POOL, rng())
    made = read_rollouts(data, pool_digest=POOL)
    assert changed_fields(rows, made) == fields
    assert bool(claims) is (kind is RingerKind.CLAIMS)
    assert all(0.0 <= claim < 1.0 for claim in claims)


def test_tokens_are_others_that_the_file_has_and_ends_stay() -> None:
    rows = honest()
    known = set(np.concatenate([row.completion_tokens[:-1] for row in rows]).tolist())
    for before, after in zip(rows, spoiled(rows, RingerKind.TOKENS, rng()), strict=True):
        differs = before.completion_tokens != after.completion_tokens
        assert differs[::2][: (len(differs)) // 2].all()
        assert not differs[-1]
        assert not differs[1::2].any()
        assert set(after.completion_tokens[:-1].tolist()) <= known


@pytest.mark.parametrize("kind", [RingerKind.TOKENS, RingerKind.PROOF])
def test_whoever_computes_sees_it_in_every_rollout_that_has_room_for_it(kind: RingerKind) -> None:
    rows = [row for row in spoiled(honest(), kind, rng()) if len(row.completion_tokens) > 2]
    assert rows
    for found in figures(rows):
        assert max(found.activation_chunks) > 0.3 or found.max_margin > 0.5


def test_what_is_no_file_is_not_spoiled() -> None:
    with pytest.raises(PeerFault):
        spoiled_file(b"no parquet", RingerKind.PROOF, POOL, rng())


def test_pools_without_proofs_get_what_can_be_seen_there() -> None:
    assert set(kinds_for(True)) == set(RingerKind)
    assert set(kinds_for(False)) == {RingerKind.OTHER_SLOT, RingerKind.CLAIMS}


def ringer(kind: RingerKind) -> Ringer:
    digest = "b" * 64
    return Ringer(
        kind=kind,
        validator="v",
        submission=Submission(
            pool_digest=digest, node="w", lease_id="0-0", slot=0, attempt=0, policy_version=0, policy_digest=digest,
            file_key="k", file_digest=digest, file_bytes=1, num_rollouts=2, num_tokens=2,
        ),
        lease=Lease(
            pool_digest=digest, lease_id="0-0", slot=0, attempt=0, node="w", policy_version=0, policy_digest=digest,
            task_indices=(0,), target_lengths=(0,), draw_seed=digest, capability_class="any", issued_at_ms=0,
            expires_at_ms=1,
        ),
        source_digest=digest,
    )  # fmt: skip


def rewards(*values: float | None) -> list[RewardResult]:
    return [RewardResult(group=0, sample=sample, reward=value) for sample, value in enumerate(values)]


@pytest.mark.parametrize("kind", [kind for kind in RingerKind if kind is not RingerKind.CLAIMS])
def test_v2_accepting_what_is_spoiled_is_a_fault_and_anything_else_is_none(kind: RingerKind) -> None:
    assert ringer_fault(ringer(kind), vote("v"), rewards(1.0, 0.0), ()) is FaultKind.ACCEPTED_RINGER
    for reason in (RejectReason.ACTIVATIONS, RejectReason.VERSION_WINDOW, RejectReason.VALIDATOR_FAULT):
        assert ringer_fault(ringer(kind), vote("v", reason), (), ()) is None


def test_v2_rewards_that_only_the_file_claims_are_a_fault_and_ones_own_are_none() -> None:
    claims = [0.3718281, 0.5772156]
    trap = ringer(RingerKind.CLAIMS)
    assert ringer_fault(trap, vote("v"), rewards(*claims), claims) is FaultKind.COPIED_CLAIMS
    assert ringer_fault(trap, vote("v"), rewards(1.0, 0.0), claims) is None
    assert ringer_fault(trap, vote("v"), rewards(None, None), claims) is None


def test_a_rollout_of_one_token_cannot_be_changed_inside() -> None:
    row = honest()[0]
    short = replace(row, completion_tokens=row.completion_tokens[-1:], logprobs=row.logprobs[-1:])
    (made,) = spoiled([short], RingerKind.TOKENS, rng())
    assert np.array_equal(made.completion_tokens, short.completion_tokens)
