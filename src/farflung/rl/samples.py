"""From graded groups to training samples: advantages, and the loss mask.

A rollout without any token to learn from (no reward, or cut off at the length limit where those are masked) makes no
sample, so it costs no forward pass.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from farflung.rl.advantage import STD_EPS
from farflung.rl.estimators import Estimator, estimate_advantages
from farflung.rl.expectation import group_log_expectation
from farflung.rl.types import RolloutGroup, TrainingSample
from farflung.wire.rollout import Rollout, StopReason


def training_samples(
    groups: Sequence[RolloutGroup],
    *,
    normalize: Estimator = "none",
    eps: float = STD_EPS,
    mask_truncated: bool = False,
) -> list[TrainingSample]:
    """Samples of all groups, ordered as the groups and by rollout within.

    Args:
        groups: those that can be learned from (`signal.why_no_learning`).
        normalize: see `estimators`.
        eps: added to the std.
        mask_truncated: rollouts that hit the length limit keep their place in the group's mean but carry no gradient.

    Raises:
        ValueError: a group of one, where the estimator compares within groups.
    """
    learnable = [
        [
            _is_learnable(rollout, reward, mask_truncated)
            for rollout, reward in zip(group.rollouts, group.rewards, strict=True)
        ]
        for group in groups
    ]
    num_loss_tokens = [
        [len(rollout.completion_tokens) * keeps for rollout, keeps in zip(group.rollouts, keeps_G, strict=True)]
        for group, keeps_G in zip(groups, learnable, strict=True)
    ]
    advantages = estimate_advantages([group.rewards for group in groups], num_loss_tokens, normalize, eps=eps)
    return [
        sample
        for group, keeps_G, advantages_G in zip(groups, learnable, advantages, strict=True)
        for sample in _group_samples(group, keeps_G, advantages_G)
    ]


def _is_learnable(rollout: Rollout, reward: float | None, mask_truncated: bool) -> bool:
    is_masked = mask_truncated and rollout.stop_reason is StopReason.LENGTH
    return reward is not None and bool(np.isfinite(reward)) and not is_masked


def _group_samples(
    group: RolloutGroup, keeps_G: Sequence[bool], advantages_G: NDArray[np.float64]
) -> list[TrainingSample]:
    kept = [
        (rollout, float(advantage))
        for rollout, keeps, advantage in zip(group.rollouts, keeps_G, advantages_G, strict=True)
        if keeps
    ]
    if not kept:
        return []
    log_expectation = group_log_expectation([float(rollout.logprobs.mean()) for rollout, _ in kept])
    return [_sample(group, rollout, advantage, log_expectation) for rollout, advantage in kept]


def _sample(group: RolloutGroup, rollout: Rollout, advantage: float, log_expectation: float) -> TrainingSample:
    return TrainingSample(
        tokens=np.concatenate([rollout.prompt_tokens, rollout.completion_tokens]),
        num_prompt_tokens=len(rollout.prompt_tokens),
        behaviour_logprobs=rollout.logprobs,
        advantages=np.full(len(rollout.completion_tokens), advantage, dtype=np.float32),
        loss_mask=np.ones(len(rollout.completion_tokens), dtype=np.bool_),
        policy_version=rollout.policy_version,
        slot=group.slot,
        group=group.group,
        sample=rollout.sample,
        group_log_expectation=log_expectation,
    )
