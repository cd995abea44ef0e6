"""One training run with thinking budgets in this process: a warm start, then versions that learn from their rollouts.

Synchronous, with the engine and the learner that the roles use; every figure but the CPU seconds depends on no clock.
Does not know what is compared (`benchmarks.budgets`).
"""

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import mean

import numpy as np
from torch import Tensor

from farflung.engine.base import GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.envs.base import Environment
from farflung.envs.playing import EpisodeLimits
from farflung.envs.registry import load_environment
from farflung.evaluation.heldout import EvaluatedRollout, evaluate
from farflung.model.config import ModelConfig
from farflung.model.factory import random_state
from farflung.model.vocabulary import never_drawn
from farflung.rl.buffer import BufferParams, ExperienceBuffer, every_group
from farflung.rl.types import RolloutGroup
from farflung.slots.curriculum import tasks_of_slot
from farflung.slots.permutation import slot_target_lengths
from farflung.slots.seeds import draw_seed
from farflung.trainer.config import (
    ModelSourceConfig,
    ObjectiveConfig,
    OptimizerConfig,
    ShapingConfig,
    TrainerConfig,
    WarmStartConfig,
)
from farflung.trainer.learner import Learner
from farflung.trainer.model_source import describe
from farflung.trainer.policy import Policy
from farflung.trainer.warm_start import warm_start
from farflung.wire.pool import EnvArg, EnvironmentSpec, PoolSpec
from farflung.wire.rollout import Rollout

GROUPS_PER_BATCH, GROUP_SIZE = 32, 8
NUM_HELDOUT = 512
LR = 5e-4
MeasureError = Callable[[EvaluatedRollout], float]
"""How far a completion is from the length that its task asks for."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is trained on, and from where."""

    env: str
    args: Mapping[str, EnvArg]
    warm_steps: int
    warm_accuracy: float
    max_completion_tokens: int
    error: MeasureError


@dataclass(frozen=True, kw_only=True)
class Score:
    """Of held-out tasks, each budget equally often."""

    accuracy: float
    length_error: float
    """Mean |target - length|, in what the task counts."""
    accuracy_by_target: Mapping[int, float]
    length_by_target: Mapping[int, float]
    """Mean completion tokens."""


class Bench:
    """One seed of a task: a warm-started model and an engine."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task, self.seed = task, seed
        self.environment = load_environment(task.env, seed, task.args)
        self._model = describe(ModelSourceConfig(), self.environment)
        self._engine = TorchEngine(self._model.config, max_batch_rows=512)
        self._secret = hashlib.sha256(b"farflung/benchmarks/budgets/%d" % seed).digest()
        self._sampling = SamplingParams(
            temperature=1.0,
            max_completion_tokens=task.max_completion_tokens,
            eos_token_ids=self._model.config.eos_token_ids,
            reserved_token_ids=never_drawn(self._model.tokenizer, self._model.config),
        )
        self._start = self._warm_start()
        self.before = self.score(self.start_policy(), self.environment)

    def start_policy(self) -> Policy:
        """As the warm start left it."""
        return self._policy(OptimizerConfig())

    def run(
        self, num_versions: int, *, args: Mapping[str, EnvArg] | None = None, shaping: ShapingConfig | None = None
    ) -> tuple[Policy, float]:
        """A policy trained from the warm start, and its CPU seconds.

        Args:
            args: arguments that differ from the task's; they may change rewards and budgets, not the alphabet.
        """
        started_s = time.process_time()
        merged = {**self.task.args, **(args or {})}
        environment = load_environment(self.task.env, self.seed, merged)
        pool = self._pool(merged, environment)
        config = TrainerConfig(
            objective=ObjectiveConfig(signal="total"),
            optimizer=OptimizerConfig(lr=LR, warmup_steps=5, schedule="linear", final_share=0.05),
            shaping=shaping or ShapingConfig(),
            max_versions=num_versions,
        )
        policy = self._policy(config.optimizer)
        learner = Learner(policy, config, pool, self._sampling.reserved_token_ids)
        buffer = ExperienceBuffer(
            BufferParams(
                groups_per_batch=GROUPS_PER_BATCH,
                max_staleness=0,
                max_slots=num_versions,
                window_slots=None,
                max_slots_per_batch=1,
            ),
            every_group,
        )
        for version in range(num_versions):
            self._engine.load_weights(policy.published_state(), version)
            groups = self._sample(environment, pool, version)
            buffer.admit(version, version, groups, sum(group.num_completion_tokens for group in groups), "here")
            batch = buffer.take(version)
            assert batch is not None
            step = learner.learn(batch)
            if step.is_applied:
                learner.keep(step)
            buffer.release(batch.batch_id)
        return policy, time.process_time() - started_s

    def score(self, policy: Policy, environment: Environment) -> Score:
        self._engine.load_weights(policy.published_state(), 0)
        found = evaluate(self._engine, environment, self._model.tokenizer, self._sampling, num_tasks=NUM_HELDOUT)
        by_target: dict[int, list[EvaluatedRollout]] = defaultdict(list)
        for rollout in found.rollouts:
            by_target[rollout.task.target_length].append(rollout)
        return Score(
            accuracy=found.accuracy,
            length_error=mean(self.task.error(rollout) for rollout in found.rollouts),
            accuracy_by_target={
                target: mean(rollout.grade.correct or 0.0 for rollout in mine)
                for target, mine in sorted(by_target.items())
            },
            length_by_target={
                target: mean(rollout.num_tokens for rollout in mine) for target, mine in sorted(by_target.items())
            },
        )

    def _policy(self, optimizer: OptimizerConfig) -> Policy:
        return Policy(self._model.config, self._start, optimizer)

    def _warm_start(self) -> dict[str, Tensor]:
        config = self._model.config
        assert isinstance(config, ModelConfig)
        policy = Policy(config, random_state(config, self.seed), OptimizerConfig())
        warm_start(
            policy,
            self.environment,
            self._model.tokenizer,
            EpisodeLimits.of_pool(self._pool(self.task.args, self.environment), self._model.config.eos_token_ids),
            self._model.config.eos_token_ids[0],
            WarmStartConfig(
                max_steps=self.task.warm_steps, target_accuracy=self.task.warm_accuracy, batch_size=128, lr=3e-3
            ),
            measure_accuracy=lambda: self.score(policy, self.environment).accuracy,
            report=lambda *_: None,
            should_stop=lambda: False,
        )
        return policy.masters_state()

    def _pool(self, args: Mapping[str, EnvArg], environment: Environment) -> PoolSpec:
        return PoolSpec(
            name="budgets",
            environment=EnvironmentSpec(
                name=self.task.env,
                args=dict(args),
                seed=self.seed,
                num_tasks=environment.num_tasks,
                target_lengths=environment.target_lengths,
            ),
            tokenizer_digest=self._model.tokenizer.digest,
            model_config_digest=self._model.config_digest,
            group_size=GROUP_SIZE,
            groups_per_slot=GROUPS_PER_BATCH,
            groups_per_batch=GROUPS_PER_BATCH,
            max_staleness=0,
            max_outstanding_groups=GROUPS_PER_BATCH,
            temperature=1.0,
            max_prompt_tokens=64,
            max_completion_tokens=self.task.max_completion_tokens,
            lease_s=60.0,
            max_attempts=1,
            max_file_bytes=16 << 20,
        )

    def _sample(self, environment: Environment, pool: PoolSpec, slot: int) -> list[RolloutGroup]:
        indices = tasks_of_slot(self._secret, slot, GROUPS_PER_BATCH, pool.environment, None)
        targets = slot_target_lengths(self._secret, slot, GROUPS_PER_BATCH, environment.target_lengths)
        tasks = [environment.task("train", index, target) for index, target in zip(indices, targets, strict=True)]
        requests = [
            GroupRequest(
                group=group,
                prompt_tokens=np.array(self._model.tokenizer.encode_chat(task.messages), dtype=np.int32),
                num_samples=GROUP_SIZE,
            )
            for group, task in enumerate(tasks)
        ]
        seed = draw_seed(self._secret, "any policy", slot, "here", 0)
        rollouts = [
            Rollout(
                env=environment.name,
                task_id=tasks[completion.group].task_id,
                group=completion.group,
                sample=completion.sample,
                prompt_tokens=requests[completion.group].prompt_tokens,
                completion_tokens=completion.tokens,
                logprobs=completion.logprobs,
                stop_reason=completion.stop_reason,
                policy_version=slot,
                target_length=targets[completion.group],
            )
            for completion in self._engine.generate(requests, self._sampling, seed)
        ]
        groups = []
        for group, task in enumerate(tasks):
            mine = rollouts[group * GROUP_SIZE : (group + 1) * GROUP_SIZE]
            grades = [
                environment.grade(task, self._model.tokenizer.decode(each.completion_tokens.tolist())) for each in mine
            ]
            groups.append(
                RolloutGroup(
                    slot=slot,
                    group=group,
                    task_id=task.task_id,
                    rollouts=tuple(mine),
                    rewards=tuple(grade.reward for grade in grades),
                    correct=tuple(grade.correct for grade in grades),
                    task_index=indices[group],
                )
            )
        return groups
