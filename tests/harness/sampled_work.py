"""A small policy, the slot that it samples honestly, and the same slot as cheats would hand it in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from farflung.engine.base import Completion, GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.model.build import AnyDecoder, build_decoder
from farflung.model.config import ModelConfig
from farflung.model.factory import random_state
from farflung.model.layout import SequenceLayout
from farflung.model.weights import load_hf_state
from farflung.proofs.scheme import build
from farflung.validator.prefill import Claim, PrefillParams, figures_of
from farflung.wire.proof import RolloutFigures, Scheme
from farflung.wire.rollout import Rollout

SEED, OTHER_SEED = bytes(range(32)), bytes(range(7, 39))
EOS, RESERVED = (3,), (0, 1)
CONFIG = ModelConfig(
    vocab_size=64, hidden_size=64, intermediate_size=128, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=16,
    max_position_embeddings=256,
)  # fmt: skip
PARAMS = SamplingParams(temperature=1.0, max_completion_tokens=48, eos_token_ids=EOS, reserved_token_ids=RESERVED)
PREFILL = PrefillParams(temperature=PARAMS.temperature, reserved_token_ids=RESERVED, micro_batch_tokens=512)
State = Mapping[str, Tensor]


@cache
def policy() -> State:
    return random_state(CONFIG, 0, std=0.25)


@cache
def verifier() -> AnyDecoder:
    return decoder_of(policy())


def decoder_of(state: State, config: ModelConfig = CONFIG) -> AnyDecoder:
    decoder = build_decoder(config).requires_grad_(False)
    load_hf_state(decoder, state)
    return decoder


@cache
def requests(num_groups: int = 2, num_samples: int = 4) -> tuple[GroupRequest, ...]:
    generator = np.random.default_rng(5)
    return tuple(
        GroupRequest(
            group=group,
            prompt_tokens=generator.integers(4, 64, size=6 + group).astype(np.int32),
            num_samples=num_samples,
        )
        for group in range(num_groups)
    )


def sampled(
    state: State | None = None,
    *,
    config: ModelConfig = CONFIG,
    params: SamplingParams = PARAMS,
    draw_seed: bytes = SEED,
    asked: Sequence[GroupRequest] | None = None,
    max_batch_rows: int = 64,
) -> list[Completion]:
    engine = TorchEngine(config, max_batch_rows=max_batch_rows)
    engine.load_weights(policy() if state is None else state, 0)
    return engine.generate(asked or requests(), params, draw_seed, with_hidden=True)


def handed_in(made: Sequence[Completion], *, draw_seed: bytes = SEED, scheme: Scheme = "sketch") -> list[Rollout]:
    """As a worker does it: every row with its proof."""
    prompts = {request.group: request.prompt_tokens for request in requests()}
    return [
        Rollout(
            env="any",
            task_id=f"train/{each.group}",
            group=each.group,
            sample=each.sample,
            prompt_tokens=prompts[each.group],
            completion_tokens=each.tokens,
            logprobs=each.logprobs,
            stop_reason=each.stop_reason,
            policy_version=0,
            proof=build(scheme, torch.from_numpy(each.hidden), draw_seed, each.group, each.sample),
        )
        for each in made
        if each.hidden is not None
    ]


def honest() -> list[Rollout]:
    return list(_honest())


@cache
def _honest() -> tuple[Rollout, ...]:
    return tuple(handed_in(sampled()))


def prefilled(rows: Sequence[Rollout], tokens: Callable[[Rollout], Sequence[int]]) -> list[Rollout]:
    """Rows with other completions, run through the true policy: logprobs and proofs are its own."""
    return [_prefilled(row, np.array(tokens(row), dtype=np.int32)) for row in rows]


def _prefilled(row: Rollout, completion: np.ndarray) -> Rollout:
    document = torch.from_numpy(np.concatenate((row.prompt_tokens, completion[:-1]))).long()
    decoder = verifier()
    states = decoder(document, SequenceLayout.from_lengths([len(document)]))[len(row.prompt_tokens) - 1 :]
    logits = states @ decoder.lm_head_weight.T / PARAMS.temperature
    logits[:, list(RESERVED)] = -torch.inf
    logprobs = torch.log_softmax(logits, -1).gather(-1, torch.from_numpy(completion).long().unsqueeze(-1)).squeeze(-1)
    return replace(
        row,
        completion_tokens=completion,
        logprobs=logprobs.numpy(),
        proof=build("sketch", states, SEED, row.group, row.sample),
    )


def figures(
    rows: Sequence[Rollout],
    *,
    draw_seed: bytes = SEED,
    decoder: AnyDecoder | None = None,
    scheme: Scheme = "sketch",
) -> list[RolloutFigures]:
    """What a validator of the true policy measures."""
    claims = [Claim(rollout=row, spans=((0, len(row.completion_tokens)),), draw_seed=draw_seed, slot=0) for row in rows]
    return figures_of(decoder or verifier(), claims, replace(PREFILL, scheme=scheme))


def per_row_int8(state: State) -> State:
    """Symmetric int8 per output row, of every matrix."""
    return {name: _quantised(weight, 127) if weight.ndim == 2 else weight for name, weight in state.items()}


def fp8(state: State) -> State:
    """float8 e4m3 with a scale per matrix."""
    found = {}
    for name, weight in state.items():
        scale = weight.abs().max() / 448 if weight.ndim == 2 else torch.ones(())
        found[name] = (weight / scale).to(torch.float8_e4m3fn).to(weight.dtype) * scale if weight.ndim == 2 else weight
    return found


def bf16(state: State) -> State:
    return {name: weight.to(torch.bfloat16).to(weight.dtype) for name, weight in state.items()}


def _quantised(weight: Tensor, steps: int) -> Tensor:
    scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / steps
    return torch.round(weight / scale) * scale


def without_layer(state: State, layer: int) -> tuple[State, ModelConfig]:
    config = replace(CONFIG, num_layers=2)
    kept = {}
    for name, weight in state.items():
        parts = name.split(".")
        if "layers" not in parts:
            kept[name] = weight
            continue
        at = parts.index("layers") + 1
        number = int(parts[at])
        if number != layer:
            parts[at] = str(number - (number > layer))
            kept[".".join(parts)] = weight
    return kept, config
