"""A model of four thousand weights and the pool that trains it: what the tests of the services build on."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from farflung.engine.base import GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.envs.base import Environment
from farflung.envs.registry import load_environment
from farflung.model.factory import random_state
from farflung.model.lora import LoraSpec, fresh_adapter
from farflung.model.vocabulary import end_of_sequence, never_drawn
from farflung.rl.types import Batch, Entry, RolloutGroup
from farflung.trainer.config import TrainerConfig
from farflung.trainer.lora_policy import LoraPolicy, Publish
from farflung.trainer.model_source import ModelDescription, describe
from farflung.trainer.objective import make_objective
from farflung.trainer.policy import Policy
from farflung.trainer.step import StepParams
from farflung.wire.batch import SlotDrop
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.rollout import Rollout

SEED = 0
NUM_TASKS, NUM_HELDOUT_TASKS = 90, 10
"""Of sort-digits with two digits: every prompt is three tokens, every demonstration too."""
FAST = {"heartbeat_s": 0.2, "poll_s": 1.0, "unreachable_s": 5.0}


@cache
def environment() -> Environment:
    return load_environment("sort-digits", SEED, {"num_digits": 2})


@cache
def description() -> ModelDescription:
    return describe(trainer_config().model, environment())


LORA = LoraSpec(rank=4, alpha=16.0)


@cache
def reserved() -> tuple[int, ...]:
    return never_drawn(description().tokenizer, description().config)


def pool_spec(**changes: Any) -> PoolSpec:
    """Two slots of two groups make a version."""
    values: dict[str, Any] = {
        "name": "tiny",
        "environment": EnvironmentSpec(name="sort-digits", args={"num_digits": 2}, seed=SEED, num_tasks=NUM_TASKS),
        "tokenizer_digest": description().tokenizer.digest,
        "model_config_digest": description().config_digest,
        "group_size": 4,
        "groups_per_slot": 2,
        "groups_per_batch": 4,
        "max_staleness": 1,
        "max_outstanding_groups": 8,
        "temperature": 1.0,
        "max_prompt_tokens": 8,
        "max_completion_tokens": 3,
        "lease_s": 30.0,
        "max_attempts": 3,
        "max_file_bytes": 1 << 20,
    }
    return PoolSpec(**(values | changes))


def trainer_config(**changes: Any) -> TrainerConfig:
    values: dict[str, Any] = {
        **FAST,
        "model": {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 16, "init_std": 0.3},
        "evaluation": {"num_tasks": 4, "every_versions": 1000},
        "max_versions": 3,
        "window_slots": 2,
        "regrade_share": 0.0,  # rewards here are made up, so that something is learned
    }
    optimizer = {"lr": 1e-3, "warmup_steps": 0} | changes.pop("optimizer", {})
    return TrainerConfig.model_validate(values | changes | {"optimizer": optimizer})


def tiny_policy(seed: int = SEED, **changes: Any) -> Policy:
    config = trainer_config(**changes)
    state = random_state(description().config, seed, config.model.init_std)
    return Policy(description().config, state, config.optimizer, config.compute)


def tiny_lora_policy(publish: Publish = "merged", seed: int = SEED, **optimizer: Any) -> LoraPolicy:
    """The seed is the adapter's, which changes nothing yet; the base is `tiny_policy()`."""
    config = trainer_config(optimizer=optimizer)
    base = random_state(description().config, SEED, config.model.init_std)
    adapter = fresh_adapter(description().config, LORA, seed)
    return LoraPolicy(description().config, base, adapter, LORA, publish, config.optimizer, config.compute)


def step_params(*, temperature: float = 1.0, micro_batch_tokens: int = 4096, max_grad_norm: float = 1.0) -> StepParams:
    """With the default objective."""
    return StepParams(
        objective=make_objective(trainer_config().objective, max_length_tokens=3),
        temperature=temperature,
        reserved_token_ids=reserved(),
        micro_batch_tokens=micro_batch_tokens,
        max_grad_norm=max_grad_norm,
    )


def sampling(pool: PoolSpec) -> SamplingParams:
    return SamplingParams(
        temperature=pool.temperature,
        max_completion_tokens=pool.max_completion_tokens,
        eos_token_ids=end_of_sequence(description().tokenizer, description().config),
        reserved_token_ids=reserved(),
    )


def sampled_groups(policy: Policy, pool: PoolSpec, *, slot: int = 0, version: int = 0) -> tuple[RolloutGroup, ...]:
    """One slot as the engine samples it on the published weights; rewards 0, 1, 0, 1, ... in each group."""
    engine = TorchEngine(description().config, max_batch_rows=64)
    engine.load_weights(policy.published_state(), version)
    tasks = [
        environment().task("train", (slot * pool.groups_per_slot + g) % NUM_TASKS) for g in range(pool.groups_per_slot)
    ]
    prompts = [np.array(description().tokenizer.encode_chat(task.messages), dtype=np.int32) for task in tasks]
    requests = [
        GroupRequest(group=group, prompt_tokens=prompt, num_samples=pool.group_size)
        for group, prompt in enumerate(prompts)
    ]
    rollouts = [
        Rollout(
            env="sort-digits",
            task_id=tasks[completion.group].task_id,
            group=completion.group,
            sample=completion.sample,
            prompt_tokens=prompts[completion.group],
            completion_tokens=completion.tokens,
            logprobs=completion.logprobs,
            stop_reason=completion.stop_reason,
            policy_version=version,
        )
        for completion in engine.generate(requests, sampling(pool), slot.to_bytes(32, "big"))
    ]
    rewards = tuple(float(sample % 2) for sample in range(pool.group_size))
    return tuple(
        RolloutGroup(
            slot=slot,
            group=group,
            task_id=task.task_id,
            rollouts=tuple(rollout for rollout in rollouts if rollout.group == group),
            rewards=rewards,
            correct=rewards,
        )
        for group, task in enumerate(tasks)
    )


def batch_of(
    *slots: Sequence[RolloutGroup], batch_id: int = 0, version: int = 0, drops: Sequence[SlotDrop] = ()
) -> Batch:
    entries = tuple(
        Entry(
            slot=groups[0].slot,
            policy_version=groups[0].policy_version,
            groups=tuple(groups),
            num_tokens=sum(group.num_completion_tokens for group in groups),
            node="w",
        )
        for groups in slots
    )
    return Batch(batch_id=batch_id, policy_version=version, entries=entries, drops=tuple(drops))
