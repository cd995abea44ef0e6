"""The trainer's state and what happens to it: a batch makes the next version, or is refused. No network, no files.

learn     batch -> samples with signal -> optimizer step -> Step, applied or not
keep      the step's version is going to be published: it counts
go_back   it is not: the weights are those of a checkpoint again
"""

from collections import Counter
from dataclasses import dataclass

from farflung.rl.batch import count_loss_tokens
from farflung.rl.types import Batch
from farflung.trainer.checkpoint import Checkpoint
from farflung.trainer.config import TrainerConfig
from farflung.trainer.objective import make_objective
from farflung.trainer.policy import Policy
from farflung.trainer.samples import TrainingSet, group_rewards, training_set
from farflung.trainer.schedule import Schedule
from farflung.trainer.step import StepParams, train_version
from farflung.wire.pool import PoolSpec

NON_FINITE = "non_finite"
"""Drop reason of a batch whose gradient or new weights were not numbers."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Step:
    """What a batch did. Without an optimizer step (no signal at all) the version still advances, weights unchanged."""

    training: TrainingSet
    metrics: dict[str, float]
    is_applied: bool
    num_loss_tokens: int
    is_spoilt: bool = False
    """Not applied, and the weights are no longer those of the version before: go back."""


class Learner:
    """Policy, optimizer and counters."""

    def __init__(self, policy: Policy, config: TrainerConfig, pool: PoolSpec, reserved: tuple[int, ...]) -> None:
        objective, optimizer = config.objective, config.optimizer
        self.policy = policy
        self.optimizer_step = 0
        """Optimizer steps behind the policy's weights."""
        self.tokens_trained = 0
        """Tokens that carried a gradient, since the run began."""
        self.dropped_groups: Counter[str] = Counter()
        """Reason -> groups of trained slots that carried none, since the run began."""
        self._objective = objective
        self._steps_per_version = optimizer.steps_per_version
        self._schedule = Schedule(
            shape=optimizer.schedule,
            lr=optimizer.lr,
            warmup_steps=optimizer.warmup_steps,
            total_steps=config.max_versions * optimizer.steps_per_version,
            final_share=optimizer.final_share,
            decay_share=optimizer.decay_share,
        )
        self._params = StepParams(
            objective=make_objective(objective, max_length_tokens=pool.max_completion_tokens),
            temperature=pool.temperature,
            reserved_token_ids=reserved,
            micro_batch_tokens=config.micro_batch_tokens,
            max_grad_norm=optimizer.max_grad_norm,
        )

    def learn(self, batch: Batch) -> Step:
        """The optimizer steps of one version; then either `keep` or `go_back`.

        `is_applied` is False only when the result was not finite: do not publish then.
        """
        training = training_set(
            batch,
            normalize=self._objective.normalize,
            judged_on=self._objective.signal,
            mask_truncated=self._objective.mask_truncated,
        )
        metrics = _batch_metrics(batch, training)
        num_loss_tokens = count_loss_tokens(training.samples)
        is_applied, is_spoilt = True, False
        if num_loss_tokens:
            first = self.optimizer_step
            result = train_version(
                self.policy,
                training.samples,
                self._params,
                lambda number: self._schedule.at(first + number),
                num_steps=self._steps_per_version,
                seed=batch.policy_version,
            )
            is_applied = result.is_applied
            is_spoilt = not result.is_applied and result.num_steps > 0
            grad_norm = float("nan") if result.grad_norm is None else result.grad_norm
            metrics |= {**result.metrics, "learning_rate": self._schedule.at(first), "grad_norm": grad_norm}
            self.optimizer_step += result.num_steps * is_applied
        return Step(
            training=training,
            metrics=metrics,
            is_applied=is_applied,
            num_loss_tokens=num_loss_tokens,
            is_spoilt=is_spoilt,
        )

    def keep(self, step: Step) -> None:
        """Count what the step learned from."""
        self.tokens_trained += step.num_loss_tokens
        self.dropped_groups.update(step.training.dropped_groups)

    def go_back(self, good: Checkpoint) -> None:
        """Weights and optimizer as they were; what has been counted stays counted."""
        self.policy.restore(good.masters, good.optimizer)
        self.optimizer_step = good.progress.optimizer_step

    def resume(self, checkpoint: Checkpoint) -> None:
        """Everything as it was."""
        self.go_back(checkpoint)
        self.tokens_trained = checkpoint.progress.tokens_trained
        self.dropped_groups = Counter(checkpoint.progress.dropped_groups)


def _batch_metrics(batch: Batch, training: TrainingSet) -> dict[str, float]:
    """An empty batch, which only reports drops, has counts of 0 and no means."""
    counts = {
        "num_groups": float(batch.num_groups),
        "completions/num_tokens": float(batch.num_tokens),
        "num_tokens": 0.0,  # that carried a gradient; the step says how many
    }
    if not batch.entries:
        return counts
    rewards, correct = group_rewards(batch.groups)
    lengths = [len(rollout.completion_tokens) for group in batch.groups for rollout in group.rollouts]
    mean = _mean(rewards)
    staleness = batch.staleness
    return {
        "reward/mean": mean,
        "reward/std": _mean([(reward - mean) * (reward - mean) for reward in rewards]) ** 0.5,
        "correct/mean": _mean(correct),
        "frac_reward_zero_std": training.dropped_groups["no_signal"] / max(batch.num_groups, 1),
        "completions/mean_length": _mean([float(length) for length in lengths]),
        "completions/max_length": float(max(lengths)),
        "staleness/mean": staleness.mean,
        "staleness/max": float(staleness.max),
        **counts,
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
