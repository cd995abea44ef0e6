"""Files that are bad on purpose, made from good ones, to see whether a validator looks; and what it says about it.

    tokens        other tokens that the same file has elsewhere, at every second place; ends, lengths and proofs stay
    proof         random bytes, as many as there were
    claims        good, with random rewards claimed: an honest validator accepts it, and never with these
    other_slot, other_draws      the file as it was, under another lease (`coordinator.ringers`)

Each is bad for certain, not only probably: so a validator that accepts one did not compute what it says it did. After
Golle and Mironov, "Uncheatable Distributed Computations" (CT-RSA 2001), who call them ringers. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from farflung.wire.panel import FaultKind, Ringer, RingerKind
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import read_rollouts, write_rollouts
from farflung.wire.verdict import Outcome, RewardResult, Verdict


def spoiled_file(
    data: bytes, kind: RingerKind, pool_digest: str, rng: np.random.Generator
) -> tuple[bytes, list[float]]:
    """The planted file's bytes, and the rewards that it claims if these say something (else none).

    Args:
        data: of an accepted submission.

    Raises:
        PeerFault: it is not one.
    """
    if kind in (RingerKind.OTHER_SLOT, RingerKind.OTHER_DRAWS):
        return data, []
    rollouts = spoiled(read_rollouts(data, pool_digest=pool_digest), kind, rng)
    claims = [rollout.claimed_reward for rollout in rollouts] if kind is RingerKind.CLAIMS else []
    return write_rollouts(rollouts, pool_digest), claims


def spoiled(rollouts: Sequence[Rollout], kind: RingerKind, rng: np.random.Generator) -> list[Rollout]:
    """The rollouts of a slot, spoiled in one way."""
    match kind:
        case RingerKind.TOKENS:
            return _with_other_tokens(rollouts)
        case RingerKind.PROOF:
            return [replace(rollout, proof=rng.bytes(len(rollout.proof))) for rollout in rollouts]
        case RingerKind.CLAIMS:
            return [replace(rollout, claimed_reward=float(np.float32(rng.random()))) for rollout in rollouts]
        case RingerKind.OTHER_SLOT | RingerKind.OTHER_DRAWS:
            return list(rollouts)


def kinds_for(rollouts_have_proofs: bool) -> tuple[RingerKind, ...]:
    """What can be planted in a pool."""
    without = (RingerKind.OTHER_SLOT, RingerKind.CLAIMS)
    return tuple(RingerKind) if rollouts_have_proofs else without


def ringer_fault(
    ringer: Ringer, verdict: Verdict, rewards: Sequence[RewardResult], claims: Sequence[float]
) -> FaultKind | None:
    """What the verdict on a planted file says about its validator; None for what an honest one may say.

    Args:
        rewards: of the verdict's evidence.
        claims: rewards that the file claims, in the order of its rollouts; empty unless it is of that kind.
    """
    if verdict.outcome is not Outcome.ACCEPTED:
        return None
    if ringer.kind is not RingerKind.CLAIMS:
        return FaultKind.ACCEPTED_RINGER
    given = [result.reward for result in rewards]
    return FaultKind.COPIED_CLAIMS if claims and given == list(claims) else None


def _with_other_tokens(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Ends stay as they are, so that only whoever computes sees it."""
    inner = [rollout.completion_tokens[:-1] for rollout in rollouts]
    known = np.unique(np.concatenate(inner)) if inner else np.zeros(0, np.int32)
    return [_exchanged(rollout, known) for rollout in rollouts]


def _exchanged(rollout: Rollout, known: np.ndarray) -> Rollout:
    tokens = rollout.completion_tokens.copy()
    places = np.arange(0, len(tokens) - 1, 2)
    if len(known) > 1 and len(places):
        after = (np.searchsorted(known, tokens[places]) + 1) % len(known)
        tokens[places] = known[after]
    return replace(rollout, completion_tokens=tokens)
