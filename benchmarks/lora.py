"""Training an adapter beside training all weights, on SmolLM2-135M: step, memory, version size, swap, decoding.

lora/step-merged, lora/step-apart     CPU-seconds of an optimizer step; the peer is the same step on all weights
lora/version, lora/swap               bytes that a version adds, CPU-seconds to load it; the peer is whole weights
lora/decode                           tokens per CPU-second with an adapter apart; the peer is no adapter
"""

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.measure import cpu_time
from benchmarks.record import record
from benchmarks.smollm2 import smollm2
from farflung.engine.base import GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.model.config import ModelConfig
from farflung.model.lora import B, LoraSpec, fresh_adapter
from farflung.model.weights import from_safetensors_bytes
from farflung.rl.types import TrainingSample
from farflung.trainer.config import ObjectiveConfig, OptimizerConfig
from farflung.trainer.lora_policy import LoraPolicy, Publish
from farflung.trainer.objective import make_objective
from farflung.trainer.policy import Policy
from farflung.trainer.policy_base import PolicyBase
from farflung.trainer.step import StepParams, train_step

SPEC = LoraSpec(rank=16, alpha=32.0)
NUM_SAMPLES, NUM_PROMPT, NUM_COMPLETION = 16, 64, 64
ROUNDS = 3


def samples(vocab_size: int) -> list[TrainingSample]:
    rng = np.random.default_rng(0)
    return [
        TrainingSample(
            tokens=rng.integers(3, vocab_size, NUM_PROMPT + NUM_COMPLETION).astype(np.int32),
            num_prompt_tokens=NUM_PROMPT,
            behaviour_logprobs=np.full(NUM_COMPLETION, -10.0, dtype=np.float32),
            advantages=np.full(NUM_COMPLETION, 1.0 if number % 2 else -1.0, dtype=np.float32),
            loss_mask=np.ones(NUM_COMPLETION, dtype=np.bool_),
            policy_version=0,
            slot=0,
            group=number // 4,
            sample=number % 4,
        )
        for number in range(NUM_SAMPLES)
    ]


def step_s(policy: PolicyBase, vocab_size: int) -> float:
    params = StepParams(
        objective=make_objective(ObjectiveConfig(weight_mode="clip"), max_length_tokens=NUM_COMPLETION),
        temperature=1.0,
        reserved_token_ids=(),
        micro_batch_tokens=1 << 20,
        max_grad_norm=1.0,
    )
    batch = samples(vocab_size)
    return _median(lambda: train_step(policy, batch, params, 1e-6))


def decode_tokens_per_s(engine: TorchEngine, vocab_size: int) -> float:
    prompt = np.arange(3, 35, dtype=np.int32) % vocab_size
    params = SamplingParams(max_completion_tokens=64, eos_token_ids=())
    requests = [GroupRequest(group=0, prompt_tokens=prompt, num_samples=16)]
    return 16 * 64 / _median(lambda: engine.generate(requests, params, bytes(32)))


def run() -> None:
    torch.set_num_threads(1)
    loaded = smollm2()
    config, state = loaded.config, loaded.state
    assert isinstance(config, ModelConfig)
    whole = Policy(config, state, OptimizerConfig())
    whole_s, whole_bytes = step_s(whole, config.vocab_size), len(whole.weights_file().data)
    whole_numbers = sum(value.numel() for value in whole.optimizer_state().values())
    del whole
    publishes: dict[str, Publish] = {"lora/step-merged": "merged", "lora/step-apart": "adapter"}
    for name, publish in publishes.items():
        policy = LoraPolicy(config, state, _moved(config), SPEC, publish, OptimizerConfig())
        seconds = step_s(policy, config.vocab_size)
        numbers = sum(value.numel() for value in policy.optimizer_state().values())
        _tell(name, seconds, whole_s, "CPU-s", {"optimizer numbers": numbers, "of all weights": whole_numbers})
    _tell("lora/version", len(policy.weights_file().data), whole_bytes, "bytes")
    _measure_engine(config, policy)


def _measure_engine(config: ModelConfig, policy: LoraPolicy) -> None:
    engine = TorchEngine(config, max_batch_rows=16)
    whole = policy.base_file()
    assert whole is not None
    load_s = _median(lambda: engine.load_weights(from_safetensors_bytes(whole, len(whole)), 0))
    plain = decode_tokens_per_s(engine, config.vocab_size)
    swap_s = _median(lambda: engine.load_adapter(policy.adapter(), 1))
    _tell("lora/swap", swap_s, load_s, "CPU-s")
    _tell("lora/decode", decode_tokens_per_s(engine, config.vocab_size), plain, "tokens/CPU-s", {"rows": 16})


def _moved(config: ModelConfig) -> dict[str, torch.Tensor]:
    """As after some steps: nothing is spared because B is zero."""
    adapter = fresh_adapter(config, SPEC, 0)
    return {name: torch.randn_like(t) * 1e-3 if name.endswith(B) else t for name, t in adapter.items()}


def _median(function: Callable[[], Any]) -> float:
    function()
    return statistics.median(cpu_time(function) for _ in range(ROUNDS))


def _tell(name: str, ours: float, whole: float, unit: str, detail: dict[str, Any] | None = None) -> None:
    entry = record(name, ours, whole, "all weights", unit, {"rank": SPEC.rank, **(detail or {})})
    print(f"{name}: {entry['ours']} {unit}, all weights {entry['peer']} ({entry['ratio']})")
