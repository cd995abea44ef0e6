"""From graded groups to training samples: advantages, and the loss mask.

A rollout without any token to learn from (no reward, or cut off at the length limit where those are masked) makes no
sample, so it costs no forward pass.
"""

from collections.abc import Sequence

import numpy as np

from farflung.rl.advantage import STD_EPS, Normalize, batch_advantages
from farflung.rl.types import RolloutGroup, TrainingSample
from farflung.wire.rollout import Rollout, StopReason


def training_samples(
    groups: Sequence[RolloutGroup],
    *,
    normalize: Normalize = "none",
    eps: float = STD_EPS,
    mask_truncated: bool = False,
) -> list[TrainingSample]:
    """Samples of all groups, ordered as the groups and by rollout within.

    Args:
        groups: those that can be learned from (`signal.why_no_learning`).
        normalize: see `advantage`.
        eps: added to the std.
        mask_truncated: rollouts that hit the length limit keep their place in the group's mean but carry no gradient.

    Raises:
        ValueError: a group of one.
    """
    advantages = batch_advantages([group.rewards for group in groups], normalize=normalize, eps=eps)
    return [
        _sample(group, rollout, float(advantage))
        for group, advantages_G in zip(groups, advantages, strict=True)
        for rollout, reward, advantage in zip(group.rollouts, group.rewards, advantages_G, strict=True)
        if reward is not None
        and np.isfinite(reward)
        and not (mask_truncated and rollout.stop_reason is StopReason.LENGTH)
    ]


def _sample(group: RolloutGroup, rollout: Rollout, advantage: float) -> TrainingSample:
    return TrainingSample(
        tokens=np.concatenate([rollout.prompt_tokens, rollout.completion_tokens]),
        num_prompt_tokens=len(rollout.prompt_tokens),
        behaviour_logprobs=rollout.logprobs,
        advantage=advantage,
        loss_mask=np.ones(len(rollout.completion_tokens), dtype=np.bool_),
        policy_version=rollout.policy_version,
        slot=group.slot,
        group=group.group,
        sample=rollout.sample,
    )
