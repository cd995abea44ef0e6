"""Held-out evaluation of the trainer's own weights before they are published."""

import json
import logging
from pathlib import Path

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

logger = logging.getLogger(__name__)

MAX_BATCH_ROWS = 256


class Canary:
    """An engine of the trainer's own that samples held-out tasks."""

    def __init__(
        self,
        config: EvaluationConfig,
        model: ModelConfig,
        environment: Environment,
        tokenizer: Tokenizer,
        pool: PoolSpec,
        reserved: tuple[int, ...],
    ) -> None:
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

    def is_collapse(self, evaluation: Evaluation, best_accuracy: float) -> bool:
        """Too far below the best to be published."""
        return evaluation.accuracy < best_accuracy - self._config.max_accuracy_drop


def append_samples(path: Path, evaluation: Evaluation, policy_version: int, count: int) -> None:
    """Append the first completions of an evaluation to `samples.jsonl`; a full disk costs the samples only."""
    rows = [
        {
            "version": policy_version,
            "task_id": rollout.task.task_id,
            "prompt": "".join(message.content for message in rollout.task.messages),
            "completion": rollout.completion,
            "reward": rollout.grade.reward,
            "correct": rollout.grade.correct,
            "target_length": rollout.task.target_length,
        }
        for rollout in evaluation.rollouts[:count]
    ]
    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    except OSError as error:
        logger.warning("samples are lost: %s: %s", path, error)
