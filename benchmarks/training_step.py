"""One training step and one whole iteration, ours beside TRL: tokens per CPU-second, one thread. About two minutes.

Same demo model and weights, same 512 sequences, same loss and AdamW. Three cases:

    training-step/demo      completions of 7 tokens, as right answers to the demo's task are: nobody pads
    training-step/uneven    1 to 64 tokens, mean 16: TRL's batch is padded, ours is not
    iteration/demo          generation, rewards, advantages and the step; learning rate 0, so the work stays the same

The 8 rollouts of a task share their prompt of 7 tokens, which ours computes once. A step is forward, backward, gradient
clipping, AdamW, and for ours the rounding of the published weights, from given sequences and advantages; TRL's is its
own `training_step` with the optimizer calls of its loop, without the loop's own cost. TRL runs at the micro-batch size
that is fastest for it (tried in the run). In the iteration ours drops groups without signal, as it does in the demo;
TRL has no such option. Rounds alternate and the median counts.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from benchmarks import trl_peer
from benchmarks.load import shared_machine
from benchmarks.measure import cpu_time, matmul_flops_per_s, profile_shares
from benchmarks.record import record
from benchmarks.start import Start, warm_started
from farflung.engine.base import GroupRequest
from farflung.envs.base import Environment
from farflung.model.config import ModelConfig
from farflung.rl.batch import flatten
from farflung.rl.grpo import GrpoParams, grpo_loss
from farflung.rl.objectives import Objective
from farflung.rl.samples import training_samples
from farflung.rl.signal import why_no_learning
from farflung.rl.types import RolloutGroup, TrainingSample
from farflung.trainer.config import OptimizerConfig, TrainerConfig
from farflung.trainer.model_source import ModelDescription
from farflung.trainer.policy import Policy
from farflung.trainer.step import StepParams, train_step
from farflung.wire.rollout import Rollout

ROUNDS = 7
STEPS_PER_ROUND = 2
PEER_BATCHES = (64, 128, 256, 512)
NUM_ITERATIONS = 12
LR = 5e-4
UNEVEN_MEAN, UNEVEN_MAX = 16, 64


def run() -> None:
    """Measure every case and record it."""
    torch.set_num_threads(1)
    start = warm_started(seed=0)
    num_sequences = start.num_groups * start.group_size
    generator = np.random.default_rng(0)
    uneven = np.minimum(UNEVEN_MAX, generator.geometric(1 / UNEVEN_MEAN, num_sequences))
    _measure_step("training-step/demo", start, np.full(num_sequences, 7))
    _measure_step("training-step/uneven", start, uneven)
    _measure_iteration(start)


# -- a step on given sequences ------------------------------------------------------------------------------------


def _measure_step(name: str, start: Start, lengths: NDArray[np.int64]) -> None:
    print(f"{name} ...", flush=True)
    samples = _samples(lengths)
    num_tokens = sum(sample.num_loss_tokens for sample in samples)
    ours = partial(train_step, _policy(start), samples, _step_params(start), LR)
    with tempfile.TemporaryDirectory(prefix="farflung-bench-") as folder:
        peer_steps = {
            rows: peer_step(start.description, start.state, start.environment, samples, rows, Path(folder))
            for rows in PEER_BATCHES
        }
        fastest = min(PEER_BATCHES, key=lambda rows: _warm_time(peer_steps[rows]))
        ours(), peer_steps[fastest]()
        times = [
            (cpu_time(ours, STEPS_PER_ROUND), cpu_time(peer_steps[fastest], STEPS_PER_ROUND)) for _ in range(ROUNDS)
        ]
    ours_s, peer_s = (statistics.median(column) / STEPS_PER_ROUND for column in zip(*times, strict=True))
    limit = matmul_flops_per_s()
    num_forward = sum(flatten(samples).lengths)  # prompts once a group
    achieved = step_flops(start.description.config, num_forward, num_tokens) / ours_s
    detail = {
        "seconds_per_step": f"{ours_s:.4f} against {peer_s:.4f}",
        "completion_tokens": num_tokens,
        "peer_micro_batch_rows": fastest,
        "matmul_limit_gflops": f"{limit / 1e9:.0f}",
        "share_of_matmul_limit": f"{achieved / limit:.0%}",
        **profile_shares(ours, num_steps=1),
        **shared_machine(),
    }
    _record(name, num_tokens / ours_s, num_tokens / peer_s, detail)


def _samples(lengths: Sequence[int] | NDArray[np.int64]) -> list[TrainingSample]:
    """Digits with advantages of both signs, in groups of 8 that share their prompt, as the rollouts of a task do."""
    generator = np.random.default_rng(1)
    prompts = generator.integers(3, 13, size=(-(-len(lengths) // 8), 7))
    return [
        TrainingSample(
            tokens=np.array([*prompts[index // 8], *generator.integers(3, 13, size=length)], dtype=np.int32),
            num_prompt_tokens=7,
            behaviour_logprobs=np.full(length, -2.3, dtype=np.float32),
            advantages=np.full(length, generator.normal(), dtype=np.float32),
            loss_mask=np.ones(length, dtype=np.bool_),
            policy_version=0,
            slot=0,
            group=index // 8,
            sample=index % 8,
        )
        for index, length in enumerate(lengths)
    ]


def _policy(start: Start) -> Policy:
    return Policy(start.description.config, start.state, OptimizerConfig(lr=LR))


def _step_params(start: Start) -> StepParams:
    return StepParams(
        objective=Objective(function=grpo_loss, params=GrpoParams()),
        temperature=1.0,
        reserved_token_ids=start.reserved_token_ids,
        micro_batch_tokens=TrainerConfig(**start.settings["trainer"]).micro_batch_tokens,
        max_grad_norm=1.0,
    )


def peer_step(
    description: ModelDescription,
    state: Mapping[str, torch.Tensor],
    environment: Environment,
    samples: Sequence[TrainingSample],
    rows: int,
    folder: Path,
) -> Callable[[], None]:
    """TRL's micro-batches of `rows` sequences, gradient clipping and optimizer."""
    num_parts = len(samples) // rows
    trainer = trl_peer.grpo_trainer(
        description,
        state,
        environment,
        OptimizerConfig(lr=LR),
        folder=folder,
        num_completions=rows,
        max_completion_tokens=UNEVEN_MAX,
        max_steps=1000,
        indices=range(len(samples)),
        gradient_accumulation_steps=num_parts,
    )
    trainer.create_optimizer_and_scheduler(1000)
    trainer.current_gradient_accumulation_steps = num_parts
    parts = [_padded(samples[first : first + rows]) for first in range(0, len(samples), rows)]
    num_tokens = torch.tensor(sum(sample.num_loss_tokens for sample in samples))

    def step() -> None:
        trainer.model.train()
        for part in parts:
            trainer._prepare_inputs = lambda _, part=part: part | {"num_items_in_batch": num_tokens}  # noqa: SLF001
            trainer.training_step(trainer.model, None, None)
        trainer.accelerator.clip_grad_norm_(trainer.model.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
        trainer.model.zero_grad()
        trainer._metrics["train"].clear()  # noqa: SLF001

    return step


def _padded(samples: Sequence[TrainingSample]) -> dict[str, torch.Tensor]:
    """As TRL's own generation step hands sequences on; prompts have one length."""

    def rows(values: list[NDArray[Any]]) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence([torch.from_numpy(value) for value in values], batch_first=True).long()

    return {
        "prompt_ids": rows([sample.tokens[: sample.num_prompt_tokens] for sample in samples]),
        "prompt_mask": torch.ones(len(samples), samples[0].num_prompt_tokens, dtype=torch.long),
        "completion_ids": rows([sample.tokens[sample.num_prompt_tokens :] for sample in samples]),
        "completion_mask": rows([sample.loss_mask for sample in samples]),
        "advantages": torch.tensor([float(sample.advantages[0]) for sample in samples]),
    }


def _warm_time(step: Callable[[], None]) -> float:
    step()
    return min(cpu_time(step) for _ in range(3))


def step_flops(config: ModelConfig, num_forward: int, num_completion: int) -> float:
    """Of the matrix products alone: two per weight forward, four backward."""
    attention = (2 * config.num_heads + 2 * config.num_kv_heads) * config.head_dim * config.hidden_size
    layers = config.num_layers * (attention + 3 * config.hidden_size * config.intermediate_size)
    return 6.0 * (layers * num_forward + config.vocab_size * config.hidden_size * num_completion)


# -- a whole iteration --------------------------------------------------------------------------------------------


def _measure_iteration(start: Start) -> None:
    """Ours runs between TRL's steps, from a callback, so that rounds alternate."""
    print("iteration/demo ...", flush=True)
    still = OptimizerConfig(lr=0.0)
    num_sequences = start.num_groups * start.group_size
    between = _Between(_Iterations(start))
    with tempfile.TemporaryDirectory(prefix="farflung-bench-") as folder:
        trainer = trl_peer.grpo_trainer(
            start.description,
            start.state,
            start.environment,
            still,
            folder=Path(folder),
            num_completions=num_sequences,
            max_completion_tokens=start.sampling.max_completion_tokens,
            max_steps=NUM_ITERATIONS,
            indices=range(NUM_ITERATIONS * start.num_groups),
            callbacks=[between],
        )
        trainer.train()
    # The first of both is a warm-up.
    ours_s, peer_s = statistics.median(between.ours_s[1:]), statistics.median(between.peer_s[1:])
    tokens = statistics.mean(between.iterations.num_tokens[1:])
    detail = {
        "seconds_per_iteration": f"{ours_s:.4f} against {peer_s:.4f}",
        "completion_tokens": round(tokens),
        "groups_dropped_by_ours": f"{between.iterations.num_dropped / (NUM_ITERATIONS * start.num_groups):.0%}",
        **shared_machine(),
    }
    _record("iteration/demo", tokens / ours_s, tokens / peer_s, detail)


class _Iterations:
    """Ours in one process: the engine samples, the environment grades, the policy steps and is published."""

    def __init__(self, start: Start) -> None:
        self.start, self.params = start, _step_params(start)
        self.policy, self.engine = _policy(start), start.engine()
        self.num_tokens: list[int] = []
        self.num_dropped = 0

    def __call__(self) -> None:
        start, first = self.start, len(self.num_tokens) * self.start.num_groups
        self.engine.load_weights(self.policy.published_state(), len(self.num_tokens))
        tasks = [start.environment.task("train", index) for index in range(first, first + start.num_groups)]
        prompts = [np.array(start.description.tokenizer.encode_chat(task.messages), dtype=np.int32) for task in tasks]
        requests = [
            GroupRequest(group=group, prompt_tokens=prompt, num_samples=start.group_size)
            for group, prompt in enumerate(prompts)
        ]
        completions = self.engine.generate(requests, start.sampling, len(self.num_tokens).to_bytes(32))
        rollouts = [
            Rollout(
                env=start.environment.name,
                task_id=tasks[completion.group].task_id,
                group=completion.group,
                sample=completion.sample,
                prompt_tokens=prompts[completion.group],
                completion_tokens=completion.tokens,
                logprobs=completion.logprobs,
                stop_reason=completion.stop_reason,
                policy_version=0,
            )
            for completion in completions
        ]
        texts = [start.description.tokenizer.decode(rollout.completion_tokens.tolist()) for rollout in rollouts]
        rewards = [
            start.environment.grade(tasks[rollout.group], text).reward
            for rollout, text in zip(rollouts, texts, strict=True)
        ]
        size = start.group_size
        groups = [
            RolloutGroup(
                slot=0,
                group=group,
                task_id=tasks[group].task_id,
                rollouts=tuple(rollouts[group * size : (group + 1) * size]),
                rewards=tuple(rewards[group * size : (group + 1) * size]),
                correct=tuple(rewards[group * size : (group + 1) * size]),
            )
            for group in range(start.num_groups)
        ]
        learnable = [group for group in groups if why_no_learning(group, judged_on="correct") is None]
        train_step(self.policy, training_samples(learnable), self.params, 0.0)
        self.num_dropped += len(groups) - len(learnable)
        self.num_tokens.append(sum(len(rollout.completion_tokens) for rollout in rollouts))


class _Between(transformers.TrainerCallback):
    """Takes the CPU time of TRL's steps, and runs and times one of ours after each."""

    def __init__(self, iterations: _Iterations) -> None:
        self.iterations = iterations
        self.ours_s: list[float] = []
        self.peer_s: list[float] = []
        self._since_s = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._since_s = time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.peer_s.append(time.process_time() - self._since_s)
        self.ours_s.append(cpu_time(self.iterations))
        self._since_s = time.process_time()


def _record(name: str, ours: float, peer: float, detail: dict[str, Any]) -> None:
    entry = record(name, ours, peer, trl_peer.VERSION, "tokens/CPU-s", detail)
    print(f"{name}: {entry['ours']:,g} against {entry['peer']:,g} = {entry['ratio']:.2f}x; {detail}", flush=True)
