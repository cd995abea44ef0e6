"""The trainer's state and what happens to it: a batch makes the next version, or is refused. No network.

learn     batch -> samples with signal -> optimizer step -> Step, applied or not
keep      the step's version is going to be published: it counts
go_back   it is not: the weights are those of a checkpoint again
"""

from collections import Counter
from dataclasses import dataclass, replace

from farflung.rl.adaptive import ObjectiveState
from farflung.rl.batch import count_loss_tokens
from farflung.rl.types import Batch
from farflung.trainer.adaptation import Adaptation
from farflung.trainer.checkpoint import Checkpoint
from farflung.trainer.config import TrainerConfig
from farflung.trainer.lessons import Lessons
from farflung.trainer.objective import make_objective, make_shaping
from farflung.trainer.policy_base import PolicyBase
from farflung.trainer.reference import KlReference
from farflung.trainer.samples import TrainingSet
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
    objective_state: ObjectiveState
    """What the objective's coefficients are from here on, if the step is kept."""
    is_spoilt: bool = False
    """Not applied, and the weights are no longer those of the version before: go back."""


class Learner:
    """Policy, optimizer and counters."""

    def __init__(
        self,
        policy: PolicyBase,
        config: TrainerConfig,
        pool: PoolSpec,
        reserved: tuple[int, ...],
        reference: KlReference | None = None,
    ) -> None:
        """
        Args:
            reference: of the KL term; there must be one if the settings have a term.
        """
        objective, optimizer = config.objective, config.optimizer
        assert (reference is None) == (objective.kl.coefficient == 0), "a KL term and its reference come together"
        self.policy = policy
        self.optimizer_step = 0
        """Optimizer steps behind the policy's weights."""
        self.tokens_trained = 0
        """Tokens that carried a gradient, since the run began."""
        self.dropped_groups: Counter[str] = Counter()
        """Reason -> groups of trained slots that carried none, since the run began."""
        self.adaptation = Adaptation(objective)
        """Coefficients that follow what they control."""
        self._reference = reference
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
        self._lessons = Lessons(
            policy=policy,
            config=objective,
            shaping=make_shaping(config.shaping, max_completion_tokens=pool.max_completion_tokens),
            params=self._params,
            reference=reference,
        )

    def learn(self, batch: Batch) -> Step:
        """The optimizer steps of one version; then either `keep` or `go_back`.

        `is_applied` is False only when the result was not finite: do not publish then.
        """
        if self._reference is not None:
            self._reference.begin(self.optimizer_step)
        adaptation = self.adaptation
        training, metrics = self._lessons.of(batch, kl_coefficient=adaptation.state.kl_coefficient)
        num_loss_tokens = count_loss_tokens(training.samples)
        is_applied, is_spoilt = True, False
        if num_loss_tokens:
            first = self.optimizer_step
            result = train_version(
                self.policy,
                training.samples,
                replace(self._params, objective=adaptation.apply(self._params.objective)),
                lambda number: self._schedule.at(first + number),
                num_steps=self._steps_per_version,
                seed=batch.policy_version,
            )
            is_applied = result.is_applied
            is_spoilt = not result.is_applied and result.num_steps > 0
            grad_norm = float("nan") if result.grad_norm is None else result.grad_norm
            metrics |= {
                **result.metrics,
                **adaptation.metrics(),
                "learning_rate": self._schedule.at(first),
                "grad_norm": grad_norm,
            }
            self.optimizer_step += result.num_steps * is_applied
        return Step(
            training=training,
            metrics=metrics,
            is_applied=is_applied,
            num_loss_tokens=num_loss_tokens,
            objective_state=adaptation.after(metrics, len(training.samples)),
            is_spoilt=is_spoilt,
        )

    def keep(self, step: Step) -> None:
        """Count what the step learned from."""
        self.tokens_trained += step.num_loss_tokens
        self.dropped_groups.update(step.training.dropped_groups)
        self.adaptation.state = step.objective_state

    def go_back(self, good: Checkpoint) -> None:
        """Weights and optimizer as they were; what has been counted stays counted."""
        self.policy.restore(good.masters, good.optimizer)
        self.optimizer_step = good.progress.optimizer_step

    def resume(self, checkpoint: Checkpoint) -> None:
        """Everything as it was."""
        self.go_back(checkpoint)
        self.tokens_trained = checkpoint.progress.tokens_trained
        self.dropped_groups = Counter(checkpoint.progress.dropped_groups)
