"""From a batch of groups to training samples: drop what cannot teach, and name what was learned from."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farflung.rl.estimators import Estimator
from farflung.rl.samples import training_samples
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


def training_set(
    batch: Batch, *, normalize: Estimator, judged_on: JudgedOn, mask_truncated: bool = False
) -> TrainingSet:
    """Samples of every group with signal, in slot and group order."""
    learnable: list[RolloutGroup] = []
    dropped: Counter[str] = Counter()
    for group in batch.groups:
        reason = why_no_learning(group, judged_on=judged_on)
        if reason is None:
            learnable.append(group)
        else:
            dropped[reason.value] += 1
    return TrainingSet(
        samples=tuple(training_samples(learnable, normalize=normalize, mask_truncated=mask_truncated)),
        trained_groups={slot: tuple(group.group for group in learnable if group.slot == slot) for slot in batch.slots},
        dropped_groups=dropped,
    )


def batch_items(batch: Batch, training: TrainingSet, submissions: Mapping[int, Submission]) -> tuple[BatchItem, ...]:
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
