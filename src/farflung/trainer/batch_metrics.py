"""Figures of a batch before anything is learned from it: rewards, lengths, staleness, what carries no gradient.

Rewards are the environment's; those that advantages are made of stand beside them (`reward/shaped_*`) where the trainer
shapes. Lengths are of completions as they are trained on; *terminated* ones ended before the length limit. Where
lengths are rewarded, `length/error_mean` is the mean distance to what the task asks for, in tokens.
"""

from collections.abc import Sequence

import numpy as np

from farflung.rl.types import Batch, RolloutGroup, TrainingSample
from farflung.trainer.samples import Selection, group_rewards
from farflung.trainer.sampling_cost import sampling_metrics
from farflung.wire.rollout import StopReason


def batch_metrics(batch: Batch, selection: Selection, *, is_shaped: bool, is_aimed: bool = False) -> dict[str, float]:
    """An empty batch, which only reports drops, has counts of 0 and no means.

    Args:
        is_shaped: whether the trainer adds to rewards.
        is_aimed: whether it rewards a length in tokens.
    """
    counts = {
        "num_groups": float(batch.num_groups),
        "completions/num_tokens": float(batch.num_tokens),
        "num_tokens": 0.0,  # that carried a gradient; the step says how many
    }
    if not batch.entries:
        return counts
    rewards, correct = group_rewards(batch.groups)
    staleness = batch.staleness
    return {
        "reward/mean": _mean(rewards),
        "reward/std": _std(rewards),
        "correct/mean": _mean(correct),
        **(_shaped_metrics(rewards, selection.shaped) if is_shaped else {}),
        "frac_reward_zero_std": selection.dropped_groups["no_signal"] / max(batch.num_groups, 1),
        **sampling_metrics(batch, selection),
        **_length_metrics(batch.groups),
        **(_aim_metrics(batch.groups) if is_aimed else {}),
        "staleness/mean": staleness.mean,
        "staleness/max": float(staleness.max),
        **counts,
    }


def sample_metrics(groups: Sequence[RolloutGroup], samples: Sequence[TrainingSample]) -> dict[str, float]:
    """Of what is learned from: the share of the groups' completion tokens that the loss leaves out."""
    num_tokens = sum(group.num_completion_tokens for group in groups)
    if not num_tokens:
        return {}
    num_loss_tokens = sum(sample.num_loss_tokens for sample in samples)
    return {"completions/masked_ratio": 1 - num_loss_tokens / num_tokens}


def _shaped_metrics(rewards: Sequence[float], shaped_groups: Sequence[RolloutGroup]) -> dict[str, float]:
    shaped, _ = group_rewards(shaped_groups)
    return {
        "reward/shaped_mean": _mean(shaped),
        "reward/shaped_std": _std(shaped),
        "reward/shaping_mean": _mean(shaped) - _mean(rewards),
    }


def _length_metrics(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    lengths = np.array([len(rollout.completion_tokens) for rollout in rollouts])
    is_terminated = np.array([rollout.stop_reason is not StopReason.LENGTH for rollout in rollouts])
    metrics = {
        "completions/mean_length": float(lengths.mean()),
        "completions/min_length": float(lengths.min()),
        "completions/max_length": float(lengths.max()),
        "completions/clipped_ratio": 1 - float(is_terminated.mean()),
    }
    terminated = lengths[is_terminated]
    if len(terminated):
        metrics |= {
            "completions/mean_terminated_length": float(terminated.mean()),
            "completions/min_terminated_length": float(terminated.min()),
            "completions/max_terminated_length": float(terminated.max()),
        }
    return metrics


def _aim_metrics(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    errors = [
        float(abs(len(rollout.completion_tokens) - rollout.target_length))
        for group in groups
        for rollout in group.rollouts
        if rollout.target_length
    ]
    return {"length/error_mean": _mean(errors)} if errors else {}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0


def _std(values: Sequence[float]) -> float:
    return float(np.std(values)) if len(values) else 0.0
