"""Does choosing what is sampled help? Curriculum and dynamic sampling, on and off, at equal numbers of sampled groups.

The task is a mixture of easy and hard: digits to sort, three to seven of them, in equal shares. After a warm start the
short strings are solved and the long ones are not, so without a choice most groups teach nothing. Every arm samples the
same number of groups with the same secret, synchronously, with the engine and the learner that the roles use; what
differs is which tasks a slot has, and which groups fill a batch. Counts and accuracies depend on no clock.
"""

import hashlib
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from benchmarks.record import record
from farflung.engine.base import GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.envs.base import strata_of
from farflung.envs.playing import EpisodeLimits
from farflung.envs.registry import load_environment
from farflung.evaluation.heldout import evaluate
from farflung.model.factory import random_state
from farflung.model.vocabulary import never_drawn
from farflung.rl.buffer import BufferParams, ExperienceBuffer, every_group
from farflung.rl.signal import why_no_learning
from farflung.rl.types import RolloutGroup
from farflung.slots.curriculum import tasks_of_slot
from farflung.slots.seeds import draw_seed
from farflung.trainer.config import (
    CurriculumConfig,
    ModelSourceConfig,
    ObjectiveConfig,
    OptimizerConfig,
    TrainerConfig,
    WarmStartConfig,
)
from farflung.trainer.curriculum import Curriculum
from farflung.trainer.learner import Learner
from farflung.trainer.model_source import describe
from farflung.trainer.policy import Policy
from farflung.trainer.warm_start import warm_start
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.pool import EnvArg, EnvironmentSpec, PoolSpec
from farflung.wire.rollout import Rollout

NUM_DIGITS = (3, 4, 5, 6, 7)
SEEDS = (0, 1, 2)
NUM_GROUPS = 2400
"""Sampled by every arm: 75 batches of 32 where all groups count."""
GROUPS_PER_BATCH, GROUPS_PER_SLOT, GROUP_SIZE = 32, 8, 8
MAX_SAMPLED_PER_BATCH = 4
NUM_HELDOUT = 800
"""Of each member that has so many: a standard error of 0.8 points of the mean over members."""
LR = 5e-4
OFF = "off"


@dataclass(frozen=True, kw_only=True)
class Arm:
    """What is switched on."""

    curriculum: Mapping[str, object] | None = None
    is_dynamic: bool = False


ARMS: Mapping[str, Arm] = {
    OFF: Arm(),
    "curriculum, fixed weights": Arm(curriculum={}),
    "curriculum, adaptive weights": Arm(curriculum={"weights": "adaptive"}),
    "dynamic sampling": Arm(is_dynamic=True),
    "adaptive curriculum and dynamic sampling": Arm(curriculum={"weights": "adaptive"}, is_dynamic=True),
}


@dataclass(kw_only=True)
class Outcome:
    """Of one run."""

    accuracy: float = 0.0
    num_sampled: int = 0
    num_with_signal: int = 0
    num_versions: int = 0
    wasted_tokens: int = 0
    tokens: int = 0

    @property
    def signal_per_1000(self) -> float:
        return 1000 * self.num_with_signal / self.num_sampled


class Bench:
    """One seed: a mixture, a warm-started model and an engine, for all arms."""

    def __init__(self, seed: int) -> None:
        labels = [f"d{count}" for count in NUM_DIGITS]
        args: dict[str, EnvArg] = {"members": " ".join(f"{label}=sort-digits" for label in labels)}
        args |= {f"d{count}.num_digits": count for count in NUM_DIGITS}
        self.seed = seed
        self.environment = load_environment("mixture", seed, args)
        self.members = [load_environment("sort-digits", seed, {"num_digits": count}) for count in NUM_DIGITS]
        self.model = describe(ModelSourceConfig(), self.environment)
        self.engine = TorchEngine(self.model.config, max_batch_rows=512)
        self.secret = hashlib.sha256(b"farflung/benchmarks/curriculum/%d" % seed).digest()
        self.pool = PoolSpec(
            name="curriculum",
            environment=EnvironmentSpec(
                name="mixture",
                args=args,
                seed=seed,
                num_tasks=self.environment.num_tasks,
                strata=strata_of(self.environment),
            ),
            tokenizer_digest=self.model.tokenizer.digest,
            model_config_digest=self.model.config_digest,
            group_size=GROUP_SIZE,
            groups_per_slot=GROUPS_PER_SLOT,
            groups_per_batch=GROUPS_PER_BATCH,
            max_staleness=0,
            max_outstanding_groups=GROUPS_PER_BATCH * MAX_SAMPLED_PER_BATCH,
            temperature=1.0,
            max_prompt_tokens=16,
            max_completion_tokens=9,
            lease_s=60.0,
            max_attempts=1,
            max_file_bytes=16 << 20,
        )
        self.sampling = SamplingParams(
            temperature=1.0,
            max_completion_tokens=self.pool.max_completion_tokens,
            eos_token_ids=self.model.config.eos_token_ids,
            reserved_token_ids=never_drawn(self.model.tokenizer, self.model.config),
        )
        self.start = self._warm_start()
        self.initial_accuracy = self._accuracy(Policy(self.model.config, self.start, OptimizerConfig()))

    def run(self, arm: Arm) -> Outcome:
        """Sample `NUM_GROUPS` groups and learn from them."""
        config = TrainerConfig(
            objective=ObjectiveConfig(), optimizer=OptimizerConfig(lr=LR, warmup_steps=5), max_versions=NUM_GROUPS
        )
        policy = Policy(self.model.config, self.start, config.optimizer)
        learner = Learner(policy, config, self.pool, self.sampling.reserved_token_ids)
        settings = CurriculumConfig.model_validate(arm.curriculum or {})
        curriculum = None if arm.curriculum is None else Curriculum(settings, self.pool)
        buffer = ExperienceBuffer(
            BufferParams(
                groups_per_batch=GROUPS_PER_BATCH,
                max_staleness=0,
                max_slots=NUM_GROUPS,
                window_slots=None,
                max_slots_per_batch=MAX_SAMPLED_PER_BATCH * GROUPS_PER_BATCH // GROUPS_PER_SLOT,
            ),
            _has_signal if arm.is_dynamic else every_group,
        )
        outcome, slot, version = Outcome(), 0, 0
        while slot * GROUPS_PER_SLOT < NUM_GROUPS:
            self.engine.load_weights(policy.published_state(), version)
            plan = None if curriculum is None else curriculum.plan_for(version)
            batch = None
            while batch is None and slot * GROUPS_PER_SLOT < NUM_GROUPS:
                groups = self._sample(slot, version, plan)
                buffer.admit(slot, version, groups, sum(group.num_completion_tokens for group in groups), "here")
                slot += 1
                batch = buffer.take(version)
            if batch is None:  # the budget ends in the middle of a batch
                break
            step = learner.learn(batch)
            assert step.is_applied
            learner.keep(step)
            buffer.release(batch.batch_id)
            if curriculum is not None:
                curriculum.observe(batch)
            _count(outcome, step.metrics)
            version += 1
        outcome.num_versions = version
        outcome.accuracy = self._accuracy(policy)
        return outcome

    def _warm_start(self) -> dict[str, Tensor]:
        policy = Policy(self.model.config, random_state(self.model.config, self.seed), OptimizerConfig())
        warm_start(
            policy,
            self.environment,
            self.model.tokenizer,
            EpisodeLimits.of_pool(self.pool, self.model.config.eos_token_ids),
            self.model.config.eos_token_ids[0],
            WarmStartConfig(max_steps=600, target_accuracy=0.3, batch_size=64),
            measure_accuracy=lambda: self._accuracy(policy, num_tasks=100),
            report=lambda *_: None,
            should_stop=lambda: False,
        )
        return policy.masters_state()

    def _accuracy(self, policy: Policy, num_tasks: int = NUM_HELDOUT) -> float:
        """Mean over the members."""
        self.engine.load_weights(policy.published_state(), 0)
        return statistics.mean(
            evaluate(self.engine, member, self.model.tokenizer, self.sampling, num_tasks=num_tasks).accuracy
            for member in self.members
        )

    def _sample(self, slot: int, version: int, plan: CurriculumPlan | None) -> list[RolloutGroup]:
        indices = tasks_of_slot(self.secret, slot, GROUPS_PER_SLOT, self.pool.environment, plan)
        tasks = [self.environment.task("train", index) for index in indices]
        requests = [
            GroupRequest(
                group=group,
                prompt_tokens=np.array(self.model.tokenizer.encode_chat(task.messages), dtype=np.int32),
                num_samples=GROUP_SIZE,
            )
            for group, task in enumerate(tasks)
        ]
        rollouts = [
            Rollout(
                env=self.environment.name,
                task_id=tasks[completion.group].task_id,
                group=completion.group,
                sample=completion.sample,
                prompt_tokens=requests[completion.group].prompt_tokens,
                completion_tokens=completion.tokens,
                logprobs=completion.logprobs,
                stop_reason=completion.stop_reason,
                policy_version=version,
            )
            for completion in self.engine.generate(
                requests, self.sampling, draw_seed(self.secret, "any policy", slot, "here", 0)
            )
        ]
        groups = []
        for group, task in enumerate(tasks):
            mine = rollouts[group * GROUP_SIZE : (group + 1) * GROUP_SIZE]
            texts = [self.model.tokenizer.decode(rollout.completion_tokens.tolist()) for rollout in mine]
            rewards = tuple(self.environment.grade(task, text).reward for text in texts)
            groups.append(
                RolloutGroup(
                    slot=slot,
                    group=group,
                    task_id=task.task_id,
                    rollouts=tuple(mine),
                    rewards=rewards,
                    correct=rewards,
                    task_index=indices[group],
                )
            )
        return groups


def _has_signal(group: RolloutGroup) -> bool:
    return why_no_learning(group) is None


def _count(outcome: Outcome, metrics: Mapping[str, float]) -> None:
    outcome.num_sampled += int(metrics["sampling/groups_sampled"])
    outcome.num_with_signal += int(metrics["sampling/groups_used"])
    outcome.wasted_tokens += int(metrics["sampling/tokens_without_signal"])
    outcome.tokens += int(metrics["completions/num_tokens"])


def run() -> None:
    """Measure all arms on all seeds, and record the figures."""
    started_s = time.process_time()
    outcomes: dict[str, list[Outcome]] = {name: [] for name in ARMS}
    initial = []
    for seed in SEEDS:
        bench = Bench(seed)
        initial.append(bench.initial_accuracy)
        for name, arm in ARMS.items():
            outcome = bench.run(arm)
            outcomes[name].append(outcome)
            print(
                f"seed {seed}, {name}: {outcome.signal_per_1000:.0f} of 1,000 groups with signal, accuracy "
                f"{bench.initial_accuracy:.3f} -> {outcome.accuracy:.3f} in {outcome.num_versions} versions"
            )
    shared = {
        "task": f"sort-digits, {NUM_DIGITS[0]} to {NUM_DIGITS[-1]} digits in equal shares",
        "groups sampled": f"{NUM_GROUPS} of {GROUP_SIZE}, {GROUPS_PER_BATCH} a batch, synchronous",
        "seeds": len(SEEDS),
        "accuracy after the warm start": _all(initial),
        "cpu_s of all arms": round(time.process_time() - started_s),
        "machine": f"shared (load average {os.getloadavg()[0]:.1f}); the figures depend on no clock",
    }
    for name in ARMS:
        if name != OFF:
            _record(name, outcomes[name], outcomes[OFF], shared)


def _record(name: str, ours: Sequence[Outcome], off: Sequence[Outcome], shared: Mapping[str, object]) -> None:
    detail = {
        **shared,
        "versions": [outcome.num_versions for outcome in ours],
        "tokens without signal": f"{_share_wasted(ours):.0%} of the sampled, off {_share_wasted(off):.0%}",
    }
    record(
        f"groups with signal, {name}",
        statistics.mean(outcome.signal_per_1000 for outcome in ours),
        statistics.mean(outcome.signal_per_1000 for outcome in off),
        OFF,
        "per 1,000 sampled",
        detail,
    )
    record(
        f"accuracy at equal samples, {name}",
        statistics.mean(outcome.accuracy for outcome in ours),
        statistics.mean(outcome.accuracy for outcome in off),
        OFF,
        "held-out accuracy",
        {
            **shared,
            "each seed": _all([outcome.accuracy for outcome in ours]),
            "each seed, off": _all([outcome.accuracy for outcome in off]),
        },
    )


def _share_wasted(outcomes: Sequence[Outcome]) -> float:
    return sum(outcome.wasted_tokens for outcome in outcomes) / sum(outcome.tokens for outcome in outcomes)


def _all(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


if __name__ == "__main__":
    run()
