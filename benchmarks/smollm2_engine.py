"""Tokens per CPU-second with logprobs on SmolLM2-135M: the own engine, transformers' `generate`, vLLM's CPU build.

float32, one thread, temperature 1 over the whole vocabulary, prompts of 40 tokens, 64 new ones without an end. Batches
of 1, 16 and 64 different prompts, and 8 prompts with 8 samples each, which is what training asks for (the engine and
vLLM share a prompt's work, `generate` has no such option). The engines take turns within each round and the medians
count; CPU time is that of the whole process tree. First all three answer a prompt greedily, with the same ids.

The peer of a figure is the better of the two. `share_of_matmul_limit` is floating-point work per second against a
product that fits the cache; at batch 1 the limit is another one: every step reads all weights.

What profiles showed, in this order: plain products of 4 to 64 rows ran at 18 to 80 GFLOP/s of a possible 102, because
each brings the weights into the kernel's order anew (`model.packed` does it once: 38 to 104); noise and draws over
49,152 ids went through memory several times (in blocks that fit the cache: 23 ms, not 37, at 64 rows). What is left at
64 rows: products 70 %, attention 11 %, noise and draws 9 %. Fusing activation, gate and residual into the products
gained nothing, and neither did one product for gate and up.

    sh benchmarks/vllm_venv.sh                                 once
    python -m benchmarks smollm2_engine                        all shapes, about ten minutes
    python -m benchmarks.smollm2_engine batch-1 batch-16       some of them
"""

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from benchmarks import peers, report, vllm_peer
from benchmarks.load import shared_machine
from benchmarks.measure import cpu_time, matmul_flops_per_s, profile_shares
from benchmarks.record import record
from benchmarks.smollm2 import PATH, smollm2
from benchmarks.vllm_peer import Vllm
from farflung.engine.base import GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.model.config import ModelConfig

NUM_PROMPT, NUM_NEW = 40, 64
NUM_GREEDY = 12
DRAW_SEED = bytes(range(32))
READ_BYTES = 400 << 20

Prompts = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    num_prompts: int
    num_samples: int = 1
    rounds: int

    @property
    def num_tokens(self) -> int:
        return self.num_prompts * self.num_samples * NUM_NEW


CASES = {
    "batch-1": Case(num_prompts=1, rounds=7),
    "batch-16": Case(num_prompts=16, rounds=5),
    "batch-64": Case(num_prompts=64, rounds=3),
    "groups-8x8": Case(num_prompts=8, num_samples=8, rounds=3),
}


class Ours:
    """The own engine."""

    def __init__(self, config: ModelConfig, state: dict[str, Any]) -> None:
        self._engine = TorchEngine(config, max_batch_rows=64)
        self._engine.load_weights(state, policy_version=0)

    def generate(self, prompts: Prompts, num_samples: int, num_new: int, *, greedy: bool = False) -> list[int]:
        """The first completion."""
        requests = [GroupRequest(group=i, prompt_tokens=p, num_samples=num_samples) for i, p in enumerate(prompts)]
        params = SamplingParams(temperature=0.0 if greedy else 1.0, max_completion_tokens=num_new, eos_token_ids=())
        first: list[int] = self._engine.generate(requests, params, DRAW_SEED)[0].tokens.tolist()
        return first


class Transformers:
    """`generate` with its dynamic cache; every logprob is read step by step, which needs least memory."""

    def __init__(self, config: ModelConfig, state: dict[str, Any]) -> None:
        self._model = peers.llama(config, {name: tensor.float() for name, tensor in state.items()})

    def generate(self, prompts: Prompts, num_samples: int, num_new: int, *, greedy: bool = False) -> list[int]:
        """The first completion."""
        rows = torch.from_numpy(prompts).long().repeat_interleave(num_samples, dim=0)
        with torch.inference_mode():
            result = self._model.generate(
                input_ids=rows,
                attention_mask=torch.ones_like(rows),
                do_sample=not greedy,
                **({} if greedy else {"temperature": 1.0, "top_k": 0, "top_p": 1.0}),
                max_new_tokens=num_new,
                use_cache=True,
                return_dict_in_generate=True,
                output_logits=True,
                pad_token_id=0,
                eos_token_id=None,
            )
            tokens = result.sequences[:, rows.shape[1] :]
            for step, logits in enumerate(result.logits):
                logits.log_softmax(-1).gather(-1, tokens[:, step, None])
        first: list[int] = tokens[0].tolist()
        return first


def run(names: Sequence[str] = ()) -> None:
    """Measure the named cases, or all, and record them."""
    if not vllm_peer.is_there():
        raise SystemExit(f"vLLM's environment is not there: {vllm_peer.MAKE}")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    loaded = smollm2()
    ours, theirs = Ours(loaded.config, loaded.state), Transformers(loaded.config, loaded.state)
    with (
        tempfile.TemporaryDirectory(prefix="farflung-bench-") as folder,
        Vllm(PATH, max_rows=64, max_tokens=NUM_PROMPT + NUM_NEW, log=Path(folder, "vllm.log")) as vllm,
    ):
        _check_same_model(ours, theirs, vllm, loaded.config)
        for name in names or CASES:
            _measure(name, CASES[name], loaded.config, ours, theirs, vllm)


def _check_same_model(ours: Ours, theirs: Transformers, vllm: Vllm, config: ModelConfig) -> None:
    prompts = _prompts(1, config)
    answers = {
        "farflung": ours.generate(prompts, 1, NUM_GREEDY, greedy=True),
        "transformers": theirs.generate(prompts, 1, NUM_GREEDY, greedy=True),
        "vllm": vllm.generate(prompts.tolist(), num_samples=1, num_new=NUM_GREEDY, greedy=True)["first"],
    }
    if len({tuple(ids) for ids in answers.values()}) > 1:
        raise SystemExit(f"the engines do not run the same model: {answers}")


def _measure(name: str, case: Case, config: ModelConfig, ours: Ours, theirs: Transformers, vllm: Vllm) -> None:
    prompts = _prompts(case.num_prompts, config)
    run_ours = partial(ours.generate, prompts, case.num_samples, NUM_NEW)
    run_theirs = partial(theirs.generate, prompts, case.num_samples, NUM_NEW)
    run_vllm = partial(_vllm_cpu_s, vllm, prompts, case)
    ours.generate(prompts, case.num_samples, 2), theirs.generate(prompts, case.num_samples, 2), run_vllm(num_new=2)
    times = [(cpu_time(run_ours), cpu_time(run_theirs), run_vllm()) for _ in range(case.rounds)]
    rates = [case.num_tokens / statistics.median(column) for column in zip(*times, strict=True)]
    by_peer = {peers.VERSION: rates[1], vllm.version: rates[2]}
    best = max(by_peer, key=lambda peer: by_peer[peer])
    detail = {
        **{f"tokens_per_cpu_s_{peer}": f"{rate:.1f}" for peer, rate in by_peer.items()},
        **_limits(case, config, rates[0]),
        **_profile(run_ours),
        **shared_machine(),
    }
    entry = record(f"engine/smollm2/{name}", rates[0], by_peer[best], best, "tokens/CPU-s", detail)
    print(f"{entry['name']}: {entry['ours']:g} against {entry['peer']:g} = {entry['ratio']:.2f}x; {detail}", flush=True)


def _prompts(count: int, config: ModelConfig) -> Prompts:
    generator = np.random.default_rng(count)
    return generator.integers(100, config.vocab_size, size=(count, NUM_PROMPT)).astype(np.int32)


def _vllm_cpu_s(vllm: Vllm, prompts: Prompts, case: Case, num_new: int = NUM_NEW) -> float:
    before_s = vllm.cpu_s
    answer = vllm.generate(prompts.tolist(), num_samples=case.num_samples, num_new=num_new)
    if answer["num_tokens"] != case.num_prompts * case.num_samples * num_new:
        raise RuntimeError(f"vLLM drew {answer['num_tokens']} tokens")
    return vllm.cpu_s - before_s


def _limits(case: Case, config: ModelConfig, rate: float) -> dict[str, str]:
    """How near the engine comes to what this processor multiplies and reads."""
    limit, read_s = matmul_flops_per_s(), _read_bytes_per_s()
    attention = (2 * config.num_heads + 2 * config.num_kv_heads) * config.head_dim * config.hidden_size
    weights = config.num_layers * (attention + 3 * config.hidden_size * config.intermediate_size)
    weights += config.vocab_size * config.hidden_size
    columns = NUM_PROMPT + (NUM_NEW + 1) / 2
    flops = 2.0 * weights + 4.0 * config.num_layers * config.num_heads * config.head_dim * columns
    reads = 4.0 * weights * rate / (case.num_prompts * case.num_samples)
    return {
        "matmul_limit_gflops": f"{limit / 1e9:.0f}",
        "share_of_matmul_limit": f"{flops * rate / limit:.0%}",
        "read_limit_gb_per_s": f"{read_s / 1e9:.1f}",
        "share_of_read_limit": f"{reads / read_s:.0%}",
    }


def _read_bytes_per_s() -> float:
    """Best single-thread rate of a sum over more than the caches hold."""
    numbers = torch.zeros(READ_BYTES // 4)
    return READ_BYTES / min(cpu_time(numbers.sum) for _ in range(8))


def _profile(call: Callable[[], Any]) -> dict[str, str]:
    shares = profile_shares(call, num_steps=1, num_runs=1)
    return {name: share for name, share in shares.items() if name != "operators_per_step"}


if __name__ == "__main__":
    run(sys.argv[1:])
    report.write()
