"""The whole of farflung in one process, to be read from top to bottom.

    python examples/single_process.py [--versions 60] [--seed 0]

What runs as five processes in `farflung demo` is one loop here, with the same parts: lease -> rollouts -> file ->
submission -> verdict -> buffer -> step -> next version. It is synchronous (staleness 0), keeps everything in memory and
signs nothing.
"""

import argparse
import hashlib
import time

import numpy as np

from farflung.engine.base import GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.envs.playing import EpisodeLimits
from farflung.envs.registry import load_environment
from farflung.evaluation.heldout import evaluate
from farflung.model.factory import random_state
from farflung.model.vocabulary import never_drawn
from farflung.rl.buffer import BufferParams, ExperienceBuffer
from farflung.rl.grpo import GrpoParams, grpo_loss
from farflung.rl.objectives import Objective
from farflung.rl.types import RolloutGroup
from farflung.slots.permutation import slot_tasks
from farflung.slots.seeds import draw_seed
from farflung.trainer.config import ModelSourceConfig, OptimizerConfig, WarmStartConfig
from farflung.trainer.model_source import describe
from farflung.trainer.policy import Policy
from farflung.trainer.samples import training_set
from farflung.trainer.step import StepParams, train_step
from farflung.trainer.warm_start import warm_start
from farflung.validation.case import JudgeRules, SlotEvidence
from farflung.validation.judge import judge
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import read_rollouts, write_rollouts
from farflung.wire.submission import Submission
from farflung.wire.verdict import Outcome, RewardResult

SECRET = hashlib.sha256(b"what only the coordinator knows").digest()


def main(num_versions: int, seed: int) -> tuple[float, float]:
    """Train; returns held-out accuracy before and after."""
    # -- The pool: rules that everybody follows ---------------------------------------------------------------------
    environment = load_environment("sort-digits", seed, {"num_digits": 4})
    model = describe(ModelSourceConfig(), environment)
    reserved = never_drawn(model.tokenizer, model.config)
    pool = PoolSpec(
        name="single",
        environment=EnvironmentSpec(
            name="sort-digits", args={"num_digits": 4}, seed=seed, num_tasks=environment.num_tasks
        ),
        tokenizer_digest=model.tokenizer.digest,
        model_config_digest=model.config_digest,
        group_size=8,
        groups_per_slot=32,
        groups_per_batch=32,
        max_staleness=0,
        max_outstanding_groups=32,
        temperature=1.0,
        max_prompt_tokens=16,
        max_completion_tokens=6,
        lease_s=60.0,
        max_attempts=3,
        max_file_bytes=16 << 20,
    )
    sampling = SamplingParams(
        temperature=pool.temperature,
        max_completion_tokens=pool.max_completion_tokens,
        eos_token_ids=model.config.eos_token_ids,
        reserved_token_ids=reserved,
    )
    rules = JudgeRules(
        pool=pool,
        vocab_size=model.config.vocab_size,
        eos_token_ids=model.config.eos_token_ids,
        reserved_token_ids=reserved,
    )
    step_params = StepParams(
        objective=Objective(function=grpo_loss, params=GrpoParams()),
        temperature=pool.temperature,
        reserved_token_ids=reserved,
        micro_batch_tokens=8192,
        max_grad_norm=1.0,
    )

    # -- The trainer's policy, warm-started, and the worker's engine ------------------------------------------------
    policy = Policy(model.config, random_state(model.config, seed), OptimizerConfig())
    engine = TorchEngine(model.config, max_batch_rows=256)

    def accuracy() -> float:
        engine.load_weights(policy.published_state(), 0)
        return evaluate(engine, environment, model.tokenizer, sampling, num_tasks=256).accuracy

    initial = warm_start(
        policy,
        environment,
        model.tokenizer,
        EpisodeLimits.of_pool(pool, model.config.eos_token_ids),
        model.config.eos_token_ids[0],
        WarmStartConfig(max_steps=200, target_accuracy=0.3),
        measure_accuracy=accuracy,
        report=lambda step, loss, reached: print(f"warm start {step:3d}: loss {loss:.3f}, accuracy {reached:.2f}"),
        should_stop=lambda: False,
    )
    buffer = ExperienceBuffer(BufferParams(groups_per_batch=32, max_staleness=0, max_slots=4, window_slots=None))

    for version in range(num_versions):
        # -- Coordinator: slot number `version`, tasks and draws that the worker did not choose ---------------------
        now_ms = int(time.time() * 1000)
        lease = Lease(
            pool_digest=pool.digest(),
            lease_id=f"lease-{version}",
            slot=version,
            attempt=0,
            node="worker",
            policy_version=version,
            policy_digest=sha256_hex(b"in-memory policy %d" % version),
            task_indices=slot_tasks(SECRET, version, pool.groups_per_slot, environment.num_tasks),
            target_lengths=(0,) * pool.groups_per_slot,
            draw_seed=draw_seed(SECRET, f"{version:064x}", version, "worker", 0).hex(),
            capability_class="any",
            issued_at_ms=now_ms,
            expires_at_ms=now_ms + 60_000,
        )

        # -- Worker: newest weights, groups of rollouts, one file, one claim ----------------------------------------
        engine.load_weights(policy.published_state(), version)
        tasks = [environment.task("train", index) for index in lease.task_indices]
        prompts = [np.array(model.tokenizer.encode_chat(task.messages), dtype=np.int32) for task in tasks]
        requests = [
            GroupRequest(group=group, prompt_tokens=prompt, num_samples=pool.group_size)
            for group, prompt in enumerate(prompts)
        ]
        rollouts = [
            Rollout(
                env=environment.name,
                task_id=tasks[completion.group].task_id,
                group=completion.group,
                sample=completion.sample,
                prompt_tokens=prompts[completion.group],
                completion_tokens=completion.tokens,
                logprobs=completion.logprobs,
                stop_reason=completion.stop_reason,
                policy_version=version,
            )
            for completion in engine.generate(requests, sampling, bytes.fromhex(lease.draw_seed))
        ]
        data = write_rollouts(rollouts, pool.digest())
        submission = Submission(
            pool_digest=pool.digest(),
            node=lease.node,
            lease_id=lease.lease_id,
            slot=lease.slot,
            attempt=lease.attempt,
            policy_version=version,
            policy_digest=lease.policy_digest,
            file_key=f"rollouts/{lease.lease_id}",
            file_digest=sha256_hex(data),
            file_bytes=len(data),
            num_rollouts=len(rollouts),
            num_tokens=sum(len(rollout.completion_tokens) for rollout in rollouts),
        )

        # -- Validator: own tasks, own prompts, own grades ----------------------------------------------------------
        def grade(claimed: list[Rollout], tasks: list = tasks) -> list[RewardResult]:  # type: ignore[type-arg]
            results = []
            for rollout in claimed:
                text = model.tokenizer.decode(rollout.completion_tokens.tolist())
                worth = environment.grade(tasks[rollout.group], text)
                results.append(
                    RewardResult(group=rollout.group, sample=rollout.sample, reward=worth.reward, correct=worth.correct)
                )
            return results

        judgement = judge(
            submission,
            lease,
            data,
            rules,
            SlotEvidence(
                env=environment.name,
                task_ids=tuple(task.task_id for task in tasks),
                prompt_tokens=tuple(prompts),
            ),
            current_version=version,
            validator="validator",
            now_ms=now_ms,
            grade=grade,
        )
        assert judgement.verdict.outcome is Outcome.ACCEPTED, judgement.evidence.detail

        # -- Trainer: accepted groups with the validator's rewards, own advantages, one step ------------------------
        accepted = read_rollouts(
            data, pool_digest=pool.digest(), max_rollouts=len(rollouts), max_tokens_per_list=pool.max_prompt_tokens
        )
        rewards = judgement.evidence.rewards
        size = pool.group_size
        groups = [
            RolloutGroup(
                slot=version,
                group=group,
                task_id=tasks[group].task_id,
                rollouts=tuple(accepted[group * size : (group + 1) * size]),
                rewards=tuple(result.reward for result in rewards[group * size : (group + 1) * size]),
                correct=tuple(result.correct for result in rewards[group * size : (group + 1) * size]),
            )
            for group in range(pool.groups_per_slot)
        ]
        buffer.admit(version, version, groups, submission.num_tokens, lease.node)
        batch = buffer.take(version)
        assert batch is not None
        training = training_set(batch, normalize="none", judged_on="correct")
        if training.samples:
            train_step(policy, training.samples, step_params, lr=5e-4)
        buffer.release(batch.batch_id)
        if version % 10 == 0:
            mean = np.mean([result.reward for result in rewards if result.reward is not None])
            print(f"version {version:3d}: reward {mean:.2f}, {len(training.samples)} samples with signal")

    final = accuracy()
    print(f"held-out accuracy {initial:.2f} -> {final:.2f}")
    return initial, final


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--versions", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.versions, arguments.seed)
