"""Training with weights that are exactly as old as a schedule says: one process, no clock, the real parts.

    lease -> engine with the weights of version u -> grades -> buffer -> learner -> version v + 1

Environment, engine, buffer and learner are those of a pool; only files, signatures and processes are left out (see
`examples/single_process.py` for these). Tasks and draws of a slot depend on the seed and the slot alone, and all
runs of a seed start from the same warm-started weights: two runs of a seed differ only in what is compared.

This module does not know why work is late: `pool_sim` says that, or a formula.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import safetensors.torch
from torch import Tensor

from farflung.engine.base import GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.envs.base import Environment
from farflung.envs.playing import EpisodeLimits
from farflung.envs.registry import load_environment
from farflung.evaluation.heldout import evaluate
from farflung.model.factory import random_state
from farflung.model.vocabulary import never_drawn
from farflung.rl.buffer import BufferParams, ExperienceBuffer
from farflung.rl.types import RolloutGroup
from farflung.slots.permutation import slot_tasks
from farflung.slots.seeds import draw_seed
from farflung.trainer.config import ModelSourceConfig, ObjectiveConfig, OptimizerConfig, TrainerConfig, WarmStartConfig
from farflung.trainer.learner import Learner
from farflung.trainer.model_source import describe
from farflung.trainer.policy import Policy
from farflung.trainer.warm_start import warm_start
from farflung.wire.pool import EnvArg, EnvironmentSpec, PoolSpec
from farflung.wire.rollout import Rollout

GROUP_SIZE = 8
NUM_HELDOUT = 1024
"""Tasks of the accuracy at the end; all that there are."""
NODE = "worker"


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """What is learned, and for how long."""

    env: str
    args: Mapping[str, EnvArg]
    warm_start: WarmStartConfig
    max_prompt_tokens: int
    max_completion_tokens: int
    groups_per_batch: int
    num_versions: int
    lr: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotUse:
    """A slot in a batch: its number, and the version that samples it."""

    slot: int
    version: int


Schedule = Sequence[Sequence[SlotUse]]
"""For each version v = 0, 1, ...: the slots that its batch is made of; versions in them are at most v."""


def constant_lag(staleness: int, num_versions: int) -> Schedule:
    """One slot a batch, sampled by version max(0, v - staleness)."""
    return [[SlotUse(slot=v, version=max(0, v - staleness))] for v in range(num_versions)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a run came to."""

    initial: float
    """Held-out accuracy of the common start."""
    accuracy: float
    """Held-out accuracy at the end."""
    rewards: tuple[float, ...]
    """Mean training reward of each batch."""
    metrics: tuple[dict[str, float], ...]
    """The learner's, one mapping a version."""
    mean_staleness: float
    max_staleness: int


class Lab:
    """A task under one seed: everything that its runs share."""

    def __init__(self, task: Task, seed: int, *, cache: Path | None = None) -> None:
        """
        Args:
            cache: folder for warm-started weights, which are made once per task and seed.
        """
        self.task, self.seed = task, seed
        self.environment: Environment = load_environment(task.env, seed, task.args)
        self.model = describe(ModelSourceConfig(), self.environment)
        self.engine = TorchEngine(self.model.config, max_batch_rows=512)
        self._secret = hashlib.sha256(b"farflung/benchmarks/lagged/%d" % seed).digest()
        self._cache = cache
        self.sampling = SamplingParams(
            temperature=1.0,
            max_completion_tokens=task.max_completion_tokens,
            eos_token_ids=self.model.config.eos_token_ids,
            reserved_token_ids=never_drawn(self.model.tokenizer, self.model.config),
        )

    @cached_property
    def start(self) -> dict[str, Tensor]:
        """Masters after the warm start, float32 under Hugging Face names."""
        path = None if self._cache is None else self._cache / f"{self._cache_key}.safetensors"
        if path is not None and path.exists():
            cached: dict[str, Tensor] = safetensors.torch.load_file(path)
            return cached
        policy = Policy(self.model.config, random_state(self.model.config, self.seed), OptimizerConfig())
        warm_start(
            policy,
            self.environment,
            self.model.tokenizer,
            EpisodeLimits.of_pool(self.pool(1, 0), self.model.config.eos_token_ids),
            self.model.config.eos_token_ids[0],
            self.task.warm_start,
            measure_accuracy=lambda: self.accuracy(policy, num_tasks=256),
            report=lambda *_: None,
            should_stop=lambda: False,
        )
        state = policy.masters_state()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            safetensors.torch.save_file(state, path)
        return state

    @property
    def _cache_key(self) -> str:
        what = f"{self.task.env} {dict(self.task.args)} {self.task.warm_start!r} {self.seed}"
        return hashlib.sha256(what.encode()).hexdigest()[:16]

    def accuracy(self, policy: Policy, num_tasks: int = NUM_HELDOUT) -> float:
        """Share of held-out tasks that one completion at temperature 1 solves; the same draws for every policy."""
        self.engine.load_weights(policy.published_state(), 0)
        return evaluate(
            self.engine, self.environment, self.model.tokenizer, self.sampling, num_tasks=num_tasks
        ).accuracy

    @cached_property
    def initial_accuracy(self) -> float:
        return self.accuracy(Policy(self.model.config, self.start, OptimizerConfig()))

    def pool(self, groups_per_slot: int, max_staleness: int) -> PoolSpec:
        task = self.task
        return PoolSpec(
            name="lagged",
            environment=EnvironmentSpec(
                name=task.env, args=dict(task.args), seed=self.seed, num_tasks=self.environment.num_tasks
            ),
            tokenizer_digest=self.model.tokenizer.digest,
            model_config_digest=self.model.config_digest,
            group_size=GROUP_SIZE,
            groups_per_slot=groups_per_slot,
            groups_per_batch=task.groups_per_batch,
            max_staleness=max_staleness,
            max_outstanding_groups=(max_staleness + 2) * task.groups_per_batch,
            temperature=1.0,
            max_prompt_tokens=task.max_prompt_tokens,
            max_completion_tokens=task.max_completion_tokens,
            lease_s=60.0,
            max_attempts=3,
            max_file_bytes=16 << 20,
        )

    def task_indices(self, pool: PoolSpec, slot: int) -> tuple[int, ...]:
        return slot_tasks(self._secret, slot, pool.groups_per_slot, self.environment.num_tasks)

    def sample(self, pool: PoolSpec, use: SlotUse, weights: Mapping[str, Tensor]) -> list[RolloutGroup]:
        """The groups of a slot, sampled with `weights` and graded."""
        if self.engine.policy_version != use.version:
            self.engine.load_weights(weights, use.version)
        tasks = [self.environment.task("train", index) for index in self.task_indices(pool, use.slot)]
        prompts = [np.array(self.model.tokenizer.encode_chat(task.messages), dtype=np.int32) for task in tasks]
        requests = [
            GroupRequest(group=group, prompt_tokens=prompt, num_samples=GROUP_SIZE)
            for group, prompt in enumerate(prompts)
        ]
        seed = draw_seed(self._secret, "any policy", use.slot, NODE, 0)
        rollouts = [
            Rollout(
                env=self.environment.name,
                task_id=tasks[completion.group].task_id,
                group=completion.group,
                sample=completion.sample,
                prompt_tokens=prompts[completion.group],
                completion_tokens=completion.tokens,
                logprobs=completion.logprobs,
                stop_reason=completion.stop_reason,
                policy_version=use.version,
            )
            for completion in self.engine.generate(requests, self.sampling, seed)
        ]
        groups = []
        for group, task in enumerate(tasks):
            members = rollouts[group * GROUP_SIZE : (group + 1) * GROUP_SIZE]
            grades = [
                self.environment.grade(task, self.model.tokenizer.decode(rollout.completion_tokens.tolist()))
                for rollout in members
            ]
            groups.append(
                RolloutGroup(
                    slot=use.slot,
                    group=group,
                    task_id=task.task_id,
                    rollouts=tuple(members),
                    rewards=tuple(grade.reward for grade in grades),
                    correct=tuple(grade.correct for grade in grades),
                )
            )
        return groups

    def run(
        self,
        schedule: Schedule,
        objective: ObjectiveConfig,
        *,
        lr: float | None = None,
        report: Callable[[int, float], None] | None = None,
    ) -> Outcome:
        """Train along the schedule, one version for each of its entries."""
        task = self.task
        lags = [v - use.version for v, uses in enumerate(schedule) for use in uses]
        initial = self.initial_accuracy
        pool = self.pool(task.groups_per_batch // len(schedule[0]), max(lags))
        config = TrainerConfig(
            objective=objective,
            optimizer=OptimizerConfig(
                lr=task.lr if lr is None else lr, schedule="linear", final_share=0.05, warmup_steps=5
            ),
            max_versions=len(schedule),
        )
        policy = Policy(self.model.config, self.start, config.optimizer)
        learner = Learner(policy, config, pool, self.sampling.reserved_token_ids)
        buffer = ExperienceBuffer(
            BufferParams(
                groups_per_batch=task.groups_per_batch,
                max_staleness=max(lags),
                max_slots=len(schedule[0]),
                window_slots=0,
            )
        )
        published: dict[int, dict[str, Tensor]] = {}
        last_use = {use.version: v for v, uses in enumerate(schedule) for use in uses}
        rewards, metrics = [], []
        self.engine.load_weights(policy.published_state(), len(schedule))  # no version of this run
        for version, uses in enumerate(schedule):
            published[version] = policy.published_state()
            for use in uses:
                groups = self.sample(pool, use, published[use.version])
                buffer.admit(use.slot, use.version, groups, sum(g.num_completion_tokens for g in groups), NODE)
            batch = buffer.take(version)
            assert batch is not None, f"version {version} has no batch"
            step = learner.learn(batch)
            learner.keep(step)
            buffer.release(batch.batch_id)
            rewards.append(step.metrics["correct/mean"])
            metrics.append(step.metrics)
            if report is not None:
                report(version, rewards[-1])
            published = {u: w for u, w in published.items() if last_use.get(u, -1) > version}
        return Outcome(
            initial=initial,
            accuracy=self.accuracy(policy),
            rewards=tuple(rewards),
            metrics=tuple(metrics),
            mean_staleness=float(np.mean(lags)),
            max_staleness=max(lags),
        )
