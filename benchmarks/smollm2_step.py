"""One training step of SmolLM2-135M, all parameters, ours beside TRL's GRPO: tokens per CPU-second and peak memory.

16 sequences of 32 prompt and 32 completion tokens, float32, one thread, one micro-batch on both sides, the same loss
and AdamW (`training_step` says what a step is). Two cases: every sequence has a prompt of its own; and two groups of 8
share theirs, as rollouts do, which ours computes once. Each side is a process of its own, so that its peak is its own;
they take turns and the median counts. About four minutes.

    python -m benchmarks smollm2_step
    python -m benchmarks.smollm2_step shared-prompts       one of the cases
"""

import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import report
from benchmarks.load import shared_machine
from benchmarks.measure import cpu_time, matmul_flops_per_s
from benchmarks.process_memory import peak_bytes
from benchmarks.record import record
from benchmarks.smollm2 import PATH, smollm2
from farflung.envs.registry import load_environment
from farflung.model.vocabulary import never_drawn
from farflung.rl.grpo import GrpoParams, grpo_loss
from farflung.rl.objectives import Objective
from farflung.rl.types import TrainingSample
from farflung.trainer.config import ModelSourceConfig, OptimizerConfig
from farflung.trainer.model_source import ModelDescription, describe
from farflung.trainer.policy import Policy
from farflung.trainer.step import StepParams, train_step

NUM_SEQUENCES, NUM_PROMPT, NUM_NEW = 16, 32, 32
ROUNDS = 3
LR = 1e-6
MIB = 1 << 20
GROUP_SIZES = {"distinct-prompts": 1, "shared-prompts": 8}


def run(names: Sequence[str] = ()) -> None:
    """Measure the named cases, or both, and record them."""
    smollm2()
    for name in names or GROUP_SIZES:
        _measure(name, GROUP_SIZES[name])


def _measure(name: str, group_size: int) -> None:
    with ExitStack() as stack:
        ours, peer = (stack.enter_context(_side(side, group_size)) for side in (_ours, _trl))
        ours("step"), peer("step")
        times = [(ours("step"), peer("step")) for _ in range(ROUNDS)]
        ours_mib, peer_mib = (side("peak") / MIB for side in (ours, peer))
    ours_s, peer_s = (statistics.median(column) for column in zip(*times, strict=True))
    num_tokens = NUM_SEQUENCES * NUM_NEW
    num_forward = num_tokens + NUM_SEQUENCES // group_size * NUM_PROMPT
    torch.set_num_threads(1)
    limit = matmul_flops_per_s()
    detail = {
        "seconds_per_step": f"{ours_s:.2f} against {peer_s:.2f}",
        "peak_memory_mib": f"{ours_mib:,.0f} against {peer_mib:,.0f}",
        "completion_tokens": num_tokens,
        "matmul_limit_gflops": f"{limit / 1e9:.0f}",
        "share_of_matmul_limit": f"{_step_flops(num_forward, num_tokens) / ours_s / limit:.0%}",
        **shared_machine(),
    }
    from benchmarks import trl_peer

    entry = record(
        f"training-step/smollm2/{name}",
        num_tokens / ours_s,
        num_tokens / peer_s,
        trl_peer.VERSION,
        "tokens/CPU-s",
        detail,
    )
    print(f"{entry['name']}: {entry['ours']:g} against {entry['peer']:g} = {entry['ratio']:.2f}x; {detail}", flush=True)


# -- processes ----------------------------------------------------------------------------------------------------

Side = Callable[[ModelDescription, Sequence[TrainingSample], Path], Callable[[], Any]]


@contextmanager
def _side(side: Side, group_size: int) -> Iterator[Callable[[str], float]]:
    """Asks a process of its own: "step" -> CPU-seconds of one more, "peak" -> bytes."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, side, group_size), daemon=True)
    process.start()
    there.close()

    def ask(what: str) -> float:
        here.send(what)
        answer: float = here.recv()
        return answer

    try:
        yield ask
    finally:
        here.close()
        process.join()


def _serve(pipe: Connection, side: Side, group_size: int) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="farflung-bench-") as folder:
        environment = load_environment("arithmetic", 0, {})
        description = describe(ModelSourceConfig(path=str(PATH)), environment)
        step = side(description, _samples(description, group_size), Path(folder))
        while True:
            try:
                asked = pipe.recv()
            except EOFError:
                return
            pipe.send(cpu_time(step) if asked == "step" else peak_bytes())


def _samples(description: ModelDescription, group_size: int) -> list[TrainingSample]:
    """Random ids with advantages of both signs."""
    generator = np.random.default_rng(1)
    size = description.config.vocab_size
    prompts = generator.integers(100, size, size=(NUM_SEQUENCES // group_size, NUM_PROMPT))
    return [
        TrainingSample(
            tokens=np.array([*prompts[index // group_size], *generator.integers(100, size, NUM_NEW)], dtype=np.int32),
            num_prompt_tokens=NUM_PROMPT,
            behaviour_logprobs=np.full(NUM_NEW, -10.8, dtype=np.float32),
            advantages=np.full(NUM_NEW, generator.normal(), dtype=np.float32),
            loss_mask=np.ones(NUM_NEW, dtype=np.bool_),
            policy_version=0,
            slot=0,
            group=index // group_size,
            sample=index % group_size,
        )
        for index in range(NUM_SEQUENCES)
    ]


def _ours(description: ModelDescription, samples: Sequence[TrainingSample], _folder: Path) -> Callable[[], Any]:
    policy = Policy(description.config, smollm2().state, OptimizerConfig(lr=LR))
    params = StepParams(
        objective=Objective(function=grpo_loss, params=GrpoParams()),
        temperature=1.0,
        reserved_token_ids=tuple(never_drawn(description.tokenizer, description.config)),
        micro_batch_tokens=NUM_SEQUENCES * (NUM_PROMPT + NUM_NEW),
        max_grad_norm=1.0,
    )
    smollm2.cache_clear()
    return partial(train_step, policy, samples, params, LR)


def _trl(description: ModelDescription, samples: Sequence[TrainingSample], folder: Path) -> Callable[[], Any]:
    from benchmarks.training_step import peer_step

    environment = load_environment("arithmetic", 0, {})
    return peer_step(description, smollm2().state, environment, samples, NUM_SEQUENCES, folder)


def _step_flops(num_forward: int, num_completion: int) -> float:
    from benchmarks.training_step import step_flops

    return step_flops(smollm2().config, num_forward, num_completion)


if __name__ == "__main__":
    run(sys.argv[1:])
    report.write()
