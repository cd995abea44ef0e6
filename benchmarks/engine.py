"""Tokens per CPU-second with logprobs: the own engine against transformers' `generate`, same weights, one thread.

The demo's model (0.11 million parameters). `generate` runs with its dynamic cache, without gradients, samples at T = 1
from the whole vocabulary, and returns its logits; a user's two lines turn them into logprobs. Rounds alternate and the
median counts. The share of the roofline is floating-point work per second against a matrix product measured in the
same run; the profile says what the rest goes to.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from torch.profiler import ProfilerActivity, profile

from benchmarks.record import record
from farflung.engine.base import GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.model.config import ModelConfig
from farflung.model.factory import random_state

DEMO_MODEL = ModelConfig(
    vocab_size=64,
    hidden_size=64,
    intermediate_size=192,
    num_layers=2,
    num_heads=4,
    num_kv_heads=4,
    head_dim=16,
    max_position_embeddings=512,
)
ROUNDS = 9
DRAW_SEED = bytes(range(32))


@dataclass(frozen=True, slots=True)
class Case:
    """A batch of equal prompts lengths, every completion run to `num_new` tokens."""

    name: str
    batch: int
    num_prompt: int
    num_new: int
    group_size: int

    @property
    def num_tokens(self) -> int:
        return self.batch * self.num_new


CASES = [
    *(Case(f"engine/decode-64/batch-{batch}", batch, 8, 64, 1) for batch in (64, 128, 256)),
    *(Case(f"engine/demo-groups/batch-{batch}", batch, 8, 7, 8) for batch in (64, 128, 256)),
]


def run() -> None:
    """Measure every case and record it."""
    torch.set_num_threads(1)
    state = random_state(DEMO_MODEL, seed=0, std=0.2)
    peer_model = _peer_model(state)
    for case in CASES:
        _measure(case, state, peer_model)


def _measure(case: Case, state: dict[str, torch.Tensor], peer_model: Any) -> None:
    requests = _requests(case)
    params = SamplingParams(max_completion_tokens=case.num_new, eos_token_ids=())
    engine = TorchEngine(DEMO_MODEL, max_batch_rows=case.batch)
    engine.load_weights(state, policy_version=0)
    prompts = torch.from_numpy(
        np.concatenate([np.tile(request.prompt_tokens, (request.num_samples, 1)) for request in requests])
    ).long()

    def ours() -> None:
        completions = engine.generate(requests, params, DRAW_SEED)
        assert sum(len(completion.logprobs) for completion in completions) == case.num_tokens

    def peer() -> None:
        assert _peer_generate(peer_model, prompts, case.num_new).numel() == case.num_tokens

    repeats = max(1, round(16_384 / case.num_tokens))  # a round of at least half a CPU-second for both together
    ours_s, peer_s = _alternate(lambda: _times(ours, repeats), lambda: _times(peer, repeats))
    peak = matmul_flops_per_s()
    achieved = case.num_tokens * _flops_per_token(case) / (ours_s / repeats)
    detail = {
        "matmul_gflops": round(peak / 1e9, 1),
        "achieved_gflops": round(achieved / 1e9, 1),
        "share_of_matmul_limit": f"{achieved / peak:.0%}",
        "profile": _profile(ours),
    }
    tokens = repeats * case.num_tokens
    entry = record(
        case.name, tokens / ours_s, tokens / peer_s, f"transformers {transformers.__version__}", "tokens/CPU-s", detail
    )
    print(f"{case.name}: {entry['ours']:,g} against {entry['peer']:,g} = {entry['ratio']:.2f}x; {detail}")


def matmul_flops_per_s() -> float:
    """Best single-thread float32 rate of a product that fits the caches."""
    a, b, out = torch.randn(256, 256), torch.randn(256, 256), torch.empty(256, 256)
    times = [_cpu_time(lambda: _times(lambda: torch.mm(a, b, out=out), 20)) for _ in range(20)]
    return 20 * 2 * 256**3 / min(times)


def _flops_per_token(case: Case) -> float:
    """Two per weight of every matrix product, and of scores and values over the mean number of columns."""
    config = DEMO_MODEL
    attention = (2 * config.num_heads + 2 * config.num_kv_heads) * config.head_dim * config.hidden_size
    weights = config.num_layers * (attention + 3 * config.hidden_size * config.intermediate_size)
    weights += config.vocab_size * config.hidden_size
    columns = case.num_prompt + (case.num_new + 1) / 2
    return 2.0 * weights + 4.0 * config.num_layers * config.num_heads * config.head_dim * columns


def _requests(case: Case) -> list[GroupRequest]:
    generator = np.random.default_rng(0)
    prompts = generator.integers(DEMO_MODEL.vocab_size, size=(case.batch // case.group_size, case.num_prompt))
    return [
        GroupRequest(group=group, prompt_tokens=prompt.astype(np.int32), num_samples=case.group_size)
        for group, prompt in enumerate(prompts)
    ]


def _peer_model(state: dict[str, torch.Tensor]) -> Any:
    config = transformers.LlamaConfig(**(DEMO_MODEL.to_hf() | {"dtype": "float32"}))
    model = transformers.LlamaForCausalLM(config).eval()
    model.load_state_dict(state)
    return model


def _peer_generate(model: Any, prompts: torch.Tensor, num_new: int) -> torch.Tensor:
    with torch.inference_mode():
        result = model.generate(
            input_ids=prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=num_new,
            min_new_tokens=num_new,
            use_cache=True,
            return_dict_in_generate=True,
            output_logits=True,
            pad_token_id=0,
        )
        tokens = result.sequences[:, prompts.shape[1] :]
        logprobs = torch.log_softmax(torch.stack(result.logits, dim=1).float(), dim=-1)
        return logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def _alternate(ours: Callable[[], None], peer: Callable[[], None]) -> tuple[float, float]:
    """Median CPU-seconds of each; the first round of both is a warm-up."""
    ours(), peer()
    times = [(_cpu_time(ours), _cpu_time(peer)) for _ in range(ROUNDS)]
    return statistics.median(time[0] for time in times), statistics.median(time[1] for time in times)


def _times(function: Callable[[], Any], repeats: int) -> None:
    for _ in range(repeats):
        function()


def _cpu_time(function: Callable[[], None]) -> float:
    started_s = time.process_time()
    function()
    return time.process_time() - started_s


def _profile(function: Callable[[], None], num_top: int = 8) -> str:
    """Share of the operators' own CPU time, and how many operators a call runs."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        function()
    rows = sorted(profiler.key_averages(), key=lambda row: -row.self_cpu_time_total)
    total_us = sum(row.self_cpu_time_total for row in rows)
    shares = [f"{row.key.removeprefix('aten::')} {row.self_cpu_time_total / total_us:.0%}" for row in rows[:num_top]]
    return ", ".join(shares)
