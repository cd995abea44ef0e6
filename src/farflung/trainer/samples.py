"""From a batch of groups to training samples: drop what cannot teach, shape rewards, and name what was learned from."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farflung.rl.estimators import Estimator
from farflung.rl.samples import training_samples
from farflung.rl.shaping import NO_SHAPING, ShapingParams, with_length_reward, with_overlong_penalty
from farflung.rl.signal import JudgedOn, NoLearning, why_no_learning
from farflung.rl.types import Batch, RolloutGroup, TrainingSample
from farflung.wire.batch import BatchItem
from farflung.wire.submission import Submission


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Selection:
    """Groups of a batch that can be learned from, with the rewards that advantages are made of."""

    groups: tuple[RolloutGroup, ...]
    dropped_groups: Counter[str]
    """Reason -> groups."""
    shaped: tuple[RolloutGroup, ...]
    """All groups of the batch with those rewards, learned from or not."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class TrainingSet:
    """What one optimizer step learns from, and what it leaves out."""

    samples: tuple[TrainingSample, ...]
    trained_groups: dict[int, tuple[int, ...]]
    """Slot -> positions of the groups that carry a gradient."""
    dropped_groups: Counter[str]
    """Reason -> groups."""


def select(batch: Batch, *, judged_on: JudgedOn, shaping: ShapingParams = NO_SHAPING) -> Selection:
    """What has signal before any shaping; with `judged_on` "total" the length reward is part of what is judged."""
    learnable: list[RolloutGroup] = []
    shaped: list[RolloutGroup] = []
    dropped: Counter[str] = Counter()
    for group in batch.groups:
        aimed = with_length_reward(group, shaping)
        reason = why_left_out(group, judged_on=judged_on, shaping=shaping)
        shaped.append(with_overlong_penalty(aimed, shaping))
        if reason is None:
            learnable.append(shaped[-1])
        else:
            dropped[reason.value] += 1
    return Selection(groups=tuple(learnable), dropped_groups=dropped, shaped=tuple(shaped))


def why_left_out(group: RolloutGroup, *, judged_on: JudgedOn, shaping: ShapingParams) -> NoLearning | None:
    """Why a group of a batch is not learned from; None if it is."""
    judged = with_length_reward(group, shaping) if judged_on == "total" else group
    return why_no_learning(judged, judged_on=judged_on)


def training_set(
    batch: Batch,
    *,
    normalize: Estimator,
    judged_on: JudgedOn,
    mask_truncated: bool = False,
    shaping: ShapingParams = NO_SHAPING,
) -> TrainingSet:
    """Samples of every group with signal, in slot and group order."""
    selection = select(batch, judged_on=judged_on, shaping=shaping)
    samples = training_samples(selection.groups, normalize=normalize, mask_truncated=mask_truncated)
    return training_set_of(batch, selection, samples)


def training_set_of(batch: Batch, selection: Selection, samples: Sequence[TrainingSample]) -> TrainingSet:
    """Of samples that were made of the selection."""
    trained: dict[int, tuple[int, ...]] = {
        slot: tuple(sorted({group.group for group in selection.groups if group.slot == slot})) for slot in batch.slots
    }
    return TrainingSet(samples=tuple(samples), trained_groups=trained, dropped_groups=selection.dropped_groups)


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
