"""Held-out evaluation of the trainer's own weights before they are published.

A policy has collapsed when its accuracy a lies below the best one b by more than `max_accuracy_drop` and by more than
chance: b - a > max(max_accuracy_drop, 4 sqrt((a (1 - a) + b (1 - b)) / n)) with n graded tasks. The default of 0.3 is
far from what a healthy run does between two evaluations, and near enough to catch one that is lost, whose accuracy
falls to about nothing; without the second bound an evaluation of a dozen tasks would refuse sound work.
"""

import math

import torch

from farflung.engine.base import SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.envs.base import Environment
from farflung.evaluation.heldout import Evaluation, evaluate
from farflung.model.any_config import AnyConfig
from farflung.model.devices import CPU
from farflung.model.tokenizer import Tokenizer
from farflung.model.vocabulary import end_of_sequence
from farflung.trainer.config import EvaluationConfig
from farflung.trainer.policy_base import PolicyBase
from farflung.wire.pool import PoolSpec

MAX_BATCH_ROWS = 256
NUM_STANDARD_ERRORS = 4.0
"""Of the difference of two accuracies: by chance alone it is larger in one of 30,000 evaluations."""


class Canary:
    """An engine of the trainer's own that samples held-out tasks, and the accuracies that it has seen."""

    def __init__(
        self,
        config: EvaluationConfig,
        model: AnyConfig,
        environment: Environment,
        tokenizer: Tokenizer,
        pool: PoolSpec,
        reserved: tuple[int, ...],
        device: torch.device = CPU,
    ) -> None:
        self.initial_accuracy = 0.0
        """Of version 0."""
        self.best_accuracy = 0.0
        """Of any published version."""
        self._config = config
        self._environment = environment
        self._tokenizer = tokenizer
        self._engine = TorchEngine(model, max_batch_rows=MAX_BATCH_ROWS, device=device)
        self._params = SamplingParams(
            temperature=config.temperature,
            max_completion_tokens=pool.max_completion_tokens,
            eos_token_ids=end_of_sequence(tokenizer, model),
            reserved_token_ids=reserved,
        )

    def is_due(self, policy_version: int, max_versions: int) -> bool:
        """Every n versions, and always the first and the last."""
        return policy_version % self._config.every_versions == 0 or policy_version >= max_versions

    def evaluate(self, policy: PolicyBase, policy_version: int) -> Evaluation:
        """Blocking; held-out accuracy of the policy as it would be published."""
        policy.load_into(self._engine, max(policy_version, 0))
        return evaluate(
            self._engine, self._environment, self._tokenizer, self._params, num_tasks=self._config.num_tasks
        )

    def is_collapse(self, evaluation: Evaluation) -> bool:
        """Too far below the best to be published; an evaluation without a single grade says nothing."""
        num_graded = evaluation.num_tasks - evaluation.num_ungraded
        if num_graded == 0 or self._config.max_accuracy_drop >= 1:
            return False
        fall = self.best_accuracy - evaluation.accuracy
        return fall > max(self._config.max_accuracy_drop, _chance(evaluation.accuracy, self.best_accuracy, num_graded))

    def accept(self, evaluation: Evaluation) -> bool:
        """The policy is going to be published; says whether it is the best so far."""
        is_best = evaluation.accuracy >= self.best_accuracy
        self.best_accuracy = max(self.best_accuracy, evaluation.accuracy)
        return is_best


def _chance(accuracy: float, best: float, num_tasks: int) -> float:
    """How far two accuracies on so many tasks may lie apart without meaning anything."""
    variance = (accuracy * (1 - accuracy) + best * (1 - best)) / num_tasks
    return NUM_STANDARD_ERRORS * math.sqrt(variance)
