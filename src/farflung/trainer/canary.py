"""Held-out evaluation of the trainer's own weights before they are published."""

from farflung.engine.base import SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.envs.base import Environment
from farflung.evaluation.heldout import Evaluation, evaluate
from farflung.model.config import ModelConfig
from farflung.model.tokenizer import Tokenizer
from farflung.model.vocabulary import end_of_sequence
from farflung.trainer.config import EvaluationConfig
from farflung.trainer.policy import Policy
from farflung.wire.pool import PoolSpec

MAX_BATCH_ROWS = 256


class Canary:
    """An engine of the trainer's own that samples held-out tasks, and the accuracies that it has seen."""

    def __init__(
        self,
        config: EvaluationConfig,
        model: ModelConfig,
        environment: Environment,
        tokenizer: Tokenizer,
        pool: PoolSpec,
        reserved: tuple[int, ...],
    ) -> None:
        self.initial_accuracy = 0.0
        """Of version 0."""
        self.best_accuracy = 0.0
        """Of any published version."""
        self._config = config
        self._environment = environment
        self._tokenizer = tokenizer
        self._engine = TorchEngine(model, max_batch_rows=MAX_BATCH_ROWS)
        self._params = SamplingParams(
            temperature=config.temperature,
            max_completion_tokens=pool.max_completion_tokens,
            eos_token_ids=end_of_sequence(tokenizer, model),
            reserved_token_ids=reserved,
        )

    def is_due(self, policy_version: int, max_versions: int) -> bool:
        """Every n versions, and always the first and the last."""
        return policy_version % self._config.every_versions == 0 or policy_version >= max_versions

    def evaluate(self, policy: Policy, policy_version: int) -> Evaluation:
        """Blocking; held-out accuracy of the policy as it would be published."""
        self._engine.load_weights(policy.published_state(), max(policy_version, 0))
        return evaluate(
            self._engine, self._environment, self._tokenizer, self._params, num_tasks=self._config.num_tasks
        )

    def is_collapse(self, evaluation: Evaluation) -> bool:
        """Too far below the best to be published; an evaluation without a single grade says nothing."""
        is_graded = evaluation.num_ungraded < evaluation.num_tasks
        return is_graded and evaluation.accuracy < self.best_accuracy - self._config.max_accuracy_drop

    def accept(self, evaluation: Evaluation) -> bool:
        """The policy is going to be published; says whether it is the best so far."""
        is_best = evaluation.accuracy >= self.best_accuracy
        self.best_accuracy = max(self.best_accuracy, evaluation.accuracy)
        return is_best
