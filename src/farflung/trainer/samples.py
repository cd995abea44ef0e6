"""From a batch of groups to training samples: drop what cannot teach, compute advantages here and nowhere else."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from farflung.rl.advantage import Normalize, group_advantages
from farflung.rl.signal import JudgedOn, why_no_learning
from farflung.rl.types import Batch, RolloutGroup, TrainingSample
from farflung.wire.batch import BatchItem
from farflung.wire.submission import Submission


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class TrainingSet:
    """What one optimizer step learns from, and what it leaves out."""

    samples: tuple[TrainingSample, ...]
    trained_groups: dict[int, tuple[int, ...]]
    """Slot -> positions of the groups that carry a gradient."""
    dropped_groups: Counter[str]
    """Reason -> groups."""


def training_set(batch: Batch, *, normalize: Normalize, judged_on: JudgedOn) -> TrainingSet:
    """Samples of every group with signal, in slot and group order."""
    samples: list[TrainingSample] = []
    trained: dict[int, list[int]] = {slot: [] for slot in batch.slots}
    dropped: Counter[str] = Counter()
    for group in batch.groups:
        reason = why_no_learning(group, judged_on=judged_on)
        if reason is not None:
            dropped[reason.value] += 1
            continue
        trained[group.slot].append(group.group)
        samples += _group_samples(group, normalize)
    return TrainingSet(
        samples=tuple(samples),
        trained_groups={slot: tuple(groups) for slot, groups in trained.items()},
        dropped_groups=dropped,
    )


def batch_items(batch: Batch, training: TrainingSet, submissions: dict[int, Submission]) -> tuple[BatchItem, ...]:
    """The batch record's entries: which submission gave which groups."""
    return tuple(
        BatchItem(
            slot=entry.slot,
            submission_digest=submissions[entry.slot].digest(),
            file_digest=submissions[entry.slot].file_digest,
            policy_version=entry.policy_version,
            groups_trained=training.trained_groups[entry.slot],
        )
        for entry in batch.entries
    )


def group_rewards(groups: Sequence[RolloutGroup]) -> tuple[list[float], list[float]]:
    """(total rewards, unshaped rewards) of every graded rollout, for figures."""
    rewards = [reward for group in groups for reward in group.rewards if reward is not None]
    correct = [value for group in groups for value in group.correct if value is not None]
    return rewards, correct


def _group_samples(group: RolloutGroup, normalize: Normalize) -> list[TrainingSample]:
    advantages_G = group_advantages(group.rewards, normalize=normalize)
    samples = []
    for rollout, reward, advantage in zip(group.rollouts, group.rewards, advantages_G, strict=True):
        if reward is None:
            continue
        samples.append(
            TrainingSample(
                tokens=np.concatenate([rollout.prompt_tokens, rollout.completion_tokens]),
                num_prompt_tokens=len(rollout.prompt_tokens),
                behaviour_logprobs=rollout.logprobs,
                advantage=float(advantage),
                loss_mask=np.ones(len(rollout.completion_tokens), dtype=np.bool_),
                policy_version=rollout.policy_version,
                slot=group.slot,
                group=group.group,
                sample=rollout.sample,
            )
        )
    return samples
