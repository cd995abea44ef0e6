"""From an accepted submission to graded groups: re-hash, read, pair every rollout with the validator's reward.

What the worker claims about rewards is never looked at. Does not know the network.
"""

from collections.abc import Sequence

from farflung.errors import PeerFault
from farflung.rl.types import RolloutGroup
from farflung.wire.batch import SlotOutcome
from farflung.wire.canonical import sha256_hex
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import read_rollouts
from farflung.wire.submission import Submission
from farflung.wire.verdict import EvidenceBundle, RejectReason, RewardResult


def graded_groups(
    outcome: SlotOutcome, data: bytes, evidence: EvidenceBundle, pool: PoolSpec
) -> tuple[RolloutGroup, ...]:
    """The groups of an accepted slot.

    Raises:
        PeerFault: the bytes are not the ones that were judged, or the evidence does not fit them.
    """
    submission = outcome.submission
    assert submission is not None, "an accepted slot has a submission"
    _check_bytes(submission, data)
    rollouts = read_rollouts(
        data,
        pool_digest=pool.digest(),
        max_rollouts=pool.groups_per_slot * pool.group_size,
        max_tokens_per_list=max(pool.max_prompt_tokens, pool.max_completion_tokens),
    )
    graded = list(zip(rollouts, evidence.rewards, strict=False))
    if len(rollouts) != len(evidence.rewards) or any(
        (rollout.group, rollout.sample) != (reward.group, reward.sample) for rollout, reward in graded
    ):
        raise PeerFault(RejectReason.ROLLOUT_COUNT, f"evidence of slot {outcome.slot} does not match its rollouts")
    return tuple(_group(outcome.slot, members) for members in _chunks(graded, pool.group_size))


def _group(slot: int, members: Sequence[tuple[Rollout, RewardResult]]) -> RolloutGroup:
    first = members[0][0]
    return RolloutGroup(
        slot=slot,
        group=first.group,
        task_id=first.task_id,
        rollouts=tuple(rollout for rollout, _ in members),
        rewards=tuple(result.reward for _, result in members),
        correct=tuple(result.correct for _, result in members),
    )


def _check_bytes(submission: Submission, data: bytes) -> None:
    if sha256_hex(data) != submission.file_digest:
        raise PeerFault(RejectReason.FILE_DIGEST, f"{submission.file_key} is not the file that was judged")


def _chunks(
    graded: Sequence[tuple[Rollout, RewardResult]], group_size: int
) -> list[Sequence[tuple[Rollout, RewardResult]]]:
    """Rollouts come ordered by (group, sample), `group_size` of each group."""
    return [graded[start : start + group_size] for start in range(0, len(graded), group_size)]
