"""What it costs that transformers runs a model: SmolLM2-135M by the own decoder and by the fallback, one thread.

The same Llama weights, the fallback told that it is a foreign model. Tokens per CPU-second of sampling with logprobs
(16 completions of 2 prompts of equal length, and of 16 prompts of lengths of their own), and of a training pass over
2 groups of 8 rollouts that share a prompt. Median of alternating rounds. About three minutes.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
import transformers

from benchmarks.load import shared_machine
from benchmarks.measure import alternate
from benchmarks.record import record
from benchmarks.smollm2 import smollm2
from farflung.engine.base import GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.model.any_config import AnyConfig
from farflung.model.build import build_decoder
from farflung.model.config import ModelConfig
from farflung.model.foreign.config import ForeignConfig
from farflung.model.weights import load_hf_state
from farflung.rl.batch import FlatBatch, flatten
from farflung.rl.types import TrainingSample
from farflung.trainer.forward import batch_logprobs

ROUNDS = 3
NEW_TOKENS = 24
PROMPT_TOKENS, COMPLETION_TOKENS = 64, 32
REASON = "told so by the benchmark"


def run() -> None:
    """Measure and record all three."""
    torch.set_num_threads(1)
    own = smollm2().config
    assert isinstance(own, ModelConfig)
    foreign = ForeignConfig.from_hf(own.to_hf(), reason=REASON)
    generator = np.random.default_rng(0)
    alike = [_request(generator, group, PROMPT_TOKENS, 8) for group in range(2)]
    unlike = [_request(generator, group, PROMPT_TOKENS - 8 + group, 1) for group in range(16)]
    _compare("foreign/sampling-groups", [_sampler(config, alike) for config in (own, foreign)], 16 * NEW_TOKENS)
    _compare("foreign/sampling-uneven", [_sampler(config, unlike) for config in (own, foreign)], 16 * NEW_TOKENS)
    batch = _batch(generator)
    _compare("foreign/training", [_pass(config, batch) for config in (own, foreign)], 16 * COMPLETION_TOKENS)


def _compare(name: str, calls: Sequence[Callable[[], object]], num_tokens: int) -> None:
    ours_s, theirs_s = alternate(*calls, rounds=ROUNDS, repeats=1)
    ours, theirs = num_tokens / ours_s, num_tokens / theirs_s
    version = f"transformers {transformers.__version__}"
    record(name, ours, theirs, version, "completion tokens per CPU-second", shared_machine())
    print(f"{name}: own decoder {ours:.1f}, {version} {theirs:.1f} completion tokens per CPU-second")


def _request(generator: np.random.Generator, group: int, length: int, num_samples: int) -> GroupRequest:
    prompt = generator.integers(10, 40_000, length).astype(np.int32)
    return GroupRequest(group=group, prompt_tokens=prompt, num_samples=num_samples)


def _sampler(config: AnyConfig, requests: Sequence[GroupRequest]) -> Callable[[], object]:
    engine = TorchEngine(config, max_batch_rows=16)
    engine.load_weights(smollm2().state, 0)
    params = SamplingParams(max_completion_tokens=NEW_TOKENS, eos_token_ids=())
    return lambda: engine.generate(requests, params, bytes(32))


def _pass(config: AnyConfig, batch: FlatBatch) -> Callable[[], object]:
    decoder = build_decoder(config)
    load_hf_state(decoder, smollm2().state)

    def forward_and_backward() -> None:
        logprobs_M, _ = batch_logprobs(decoder, batch)
        logprobs_M.mean().backward()
        decoder.zero_grad(set_to_none=True)

    return forward_and_backward


def _batch(generator: np.random.Generator) -> FlatBatch:
    samples = []
    for group in range(2):
        prompt = _request(generator, group, PROMPT_TOKENS, 8).prompt_tokens
        first = _sample(generator, group, prompt)
        samples += [replace(_sample(generator, group, prompt), sample=sample) for sample in range(1, 8)] + [first]
    return flatten(samples)


def _sample(generator: np.random.Generator, group: int, prompt: np.ndarray) -> TrainingSample:
    completion = generator.integers(10, 40_000, COMPLETION_TOKENS).astype(np.int32)
    return TrainingSample(
        tokens=np.concatenate((prompt, completion)),
        num_prompt_tokens=len(prompt),
        behaviour_logprobs=np.zeros(COMPLETION_TOKENS, dtype=np.float32),
        advantages=np.ones(COMPLETION_TOKENS, dtype=np.float32),
        loss_mask=np.ones(COMPLETION_TOKENS, dtype=np.bool_),
        policy_version=0,
        slot=0,
        group=group,
        sample=0,
    )
