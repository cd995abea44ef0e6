"""Tokens per CPU-second with logprobs: the own engine against transformers' `generate`, same weights, one thread.

The demo's model (0.11 million parameters), float32, sampling at T = 1 over the whole vocabulary. Three shapes: 64 new
tokens without an end; the demo's own groups of 8 with 7 new tokens; and a queue of completions of uneven length, where
only tokens up to the end count. Rounds alternate and the median counts. The share of the matrix product limit is
floating-point work per second against a product measured in the same run; the profile says what the rest goes to.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import peers
from benchmarks.measure import alternate, matmul_flops_per_s, profile_shares
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
NUM_PROMPT = 8
ROUNDS = 9
TOKENS_PER_ROUND = 16_384
DRAW_SEED = bytes(range(32))


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """`num_completions` in groups that share a prompt, at most `batch` of them at once."""

    name: str
    batch: int
    num_new: int
    group_size: int = 1
    num_completions: int
    eos_token_ids: tuple[int, ...] = ()


CASES = [
    *(Case(name=f"engine/64-tokens/batch-{b}", batch=b, num_new=64, num_completions=b) for b in (64, 128, 256)),
    *(
        Case(name=f"engine/demo-groups/batch-{b}", batch=b, num_new=7, group_size=8, num_completions=b)
        for b in (64, 128, 256)
    ),
    Case(
        name="engine/uneven-lengths/batch-128",
        batch=128,
        num_new=64,
        group_size=8,
        num_completions=512,
        eos_token_ids=(1, 2),
    ),
]


def run() -> None:
    """Measure every case and record it."""
    torch.set_num_threads(1)
    state = random_state(DEMO_MODEL, seed=0, std=0.2)
    peer_model = peers.llama(DEMO_MODEL, state)
    for case in CASES:
        _measure(case, state, peer_model)


def _measure(case: Case, state: dict[str, Tensor], peer_model: Any) -> None:
    requests = _requests(case)
    steps: list[None] = []
    engine = TorchEngine(DEMO_MODEL, max_batch_rows=case.batch, should_stop=lambda: steps.append(None) is not None)
    engine.load_weights(state, policy_version=0)
    params = SamplingParams(max_completion_tokens=case.num_new, eos_token_ids=case.eos_token_ids)
    ours = partial(engine.generate, requests, params, DRAW_SEED)
    num_tokens = sum(len(completion.tokens) for completion in ours())
    num_steps = len(steps) - 1
    peer, num_peer_tokens = _peer(case, requests, peer_model)

    repeats = max(1, round(TOKENS_PER_ROUND / num_tokens))
    ours_s, peer_s = alternate(ours, peer, rounds=ROUNDS, repeats=repeats)
    limit = matmul_flops_per_s()
    achieved = num_tokens * _flops_per_token(num_tokens / case.num_completions) / ours_s
    detail = {
        "matmul_limit_gflops": f"{limit / 1e9:.0f}",
        "achieved_gflops": f"{achieved / 1e9:.1f}",
        "share_of_matmul_limit": f"{achieved / limit:.0%}",
        **profile_shares(ours, num_steps=num_steps),
    }
    entry = record(case.name, num_tokens / ours_s, num_peer_tokens / peer_s, peers.VERSION, "tokens/CPU-s", detail)
    print(f"{case.name}: {entry['ours']:,g} against {entry['peer']:,g} = {entry['ratio']:.2f}x; {detail}", flush=True)


def _requests(case: Case) -> list[GroupRequest]:
    generator = np.random.default_rng(0)
    prompts = generator.integers(DEMO_MODEL.vocab_size, size=(case.num_completions // case.group_size, NUM_PROMPT))
    return [
        GroupRequest(group=group, prompt_tokens=prompt.astype(np.int32), num_samples=case.group_size)
        for group, prompt in enumerate(prompts)
    ]


def _peer(case: Case, requests: list[GroupRequest], model: Any) -> tuple[Callable[[], Any], int]:
    """The peer's call, one batch after another, and how many tokens up to the end it draws on average."""
    rows = [np.tile(request.prompt_tokens, (request.num_samples, 1)) for request in requests]
    batches = torch.from_numpy(np.concatenate(rows)).long().split(case.batch)

    def call() -> list[Tensor]:
        return [
            peers.generate(model, batch, max_new_tokens=case.num_new, eos_token_ids=case.eos_token_ids)[0]
            for batch in batches
        ]

    torch.manual_seed(0)
    num_calls = 4 if case.eos_token_ids else 1
    counts = [_useful_tokens(tokens, case.eos_token_ids) for _ in range(num_calls) for tokens in call()]
    return call, sum(counts) // num_calls


def _useful_tokens(tokens_BT: Tensor, eos_token_ids: tuple[int, ...]) -> int:
    """Tokens up to and with the first end of each row; the rest is padding."""
    is_end = torch.isin(tokens_BT, torch.tensor(eos_token_ids, dtype=torch.int64))
    after_end = is_end.cumsum(dim=1) - is_end.long() > 0
    return int((~after_end).sum())


def _flops_per_token(mean_new: float) -> float:
    """Two per weight of every matrix product, and of scores and values over the mean number of columns."""
    config = DEMO_MODEL
    attention = (2 * config.num_heads + 2 * config.num_kv_heads) * config.head_dim * config.hidden_size
    weights = config.num_layers * (attention + 3 * config.hidden_size * config.intermediate_size)
    weights += config.vocab_size * config.hidden_size
    columns = NUM_PROMPT + (mean_new + 1) / 2
    return 2.0 * weights + 4.0 * config.num_layers * config.num_heads * config.head_dim * columns
