"""Ways in which honest machines differ: how they batch, pad, pack, thread and round.

    worker side    rows at once, threads, another implementation (transformers) with padding on either side
    verifier side  packed prefill or one completion a pass, float32 or bfloat16 activations

A worker with another implementation draws from its own logits, so where it has another token than the engine its
completion ends there: what follows would be another text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers import llama
from farflung.engine.base import Completion
from farflung.model.config import ModelConfig
from farflung.model.head import next_token_logits, vocabulary_mask
from farflung.proofs.draws import draw, gumbel_noise, position_keys
from farflung.slots.noise import row_keys
from farflung.validator.calibrate import SEED, Bench
from farflung.wire.proof import RolloutFigures
from farflung.wire.rollout import Rollout

Rows = list[Rollout]
Submissions = list[tuple[RolloutFigures, ...]]
ROWS_PER_PASS = 16


def _examined(bench: Bench, rows: Rows) -> Submissions:
    return bench.examined(rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class Variation:
    """One kind of honest worker and verifier."""

    sample: Callable[[Bench], list[Completion]]
    examine: Callable[[Bench, Rows], Submissions] = _examined
    is_rounded: bool = False


def _batched(bench: Bench, max_batch_rows: int = 64) -> list[Completion]:
    return bench.sampled(max_batch_rows=max_batch_rows)


def _two_threads(bench: Bench) -> list[Completion]:
    torch.set_num_threads(2)
    try:
        return bench.sampled()
    finally:
        torch.set_num_threads(1)


def _by_transformers(bench: Bench, side: str) -> list[Completion]:
    assert isinstance(bench.config, ModelConfig)
    model = llama(bench.config, {name: weight.float() for name, weight in bench.state.items()})
    made: list[Completion] = []
    drawn = bench.sampled()
    for start in range(0, len(drawn), ROWS_PER_PASS):
        part = drawn[start : start + ROWS_PER_PASS]
        documents = [np.concatenate((bench.prompts[each.group], each.tokens[:-1])) for each in part]
        for each, states_LD in zip(part, _states(model, documents, side), strict=True):
            made.append(_drawn_from(bench, each, states_LD[-len(each.tokens) :], model.lm_head.weight))
    return made


@torch.no_grad()
def _states(model: Any, documents: Sequence[np.ndarray], side: str) -> list[Tensor]:
    """Post-final-norm states [L, D] of each document, computed in one padded batch."""
    lengths = [len(each) for each in documents]
    tokens = torch.zeros(len(documents), max(lengths), dtype=torch.int64)
    mask = torch.zeros_like(tokens)
    for row, (document, length) in enumerate(zip(documents, lengths, strict=True)):
        place = slice(-length, None) if side == "left" else slice(length)
        tokens[row, place] = torch.from_numpy(document.astype(np.int64))
        mask[row, place] = 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    states = model.model(input_ids=tokens, attention_mask=mask, position_ids=positions).last_hidden_state
    return [row[kept.bool()] for row, kept in zip(states, mask, strict=True)]


@torch.no_grad()
def _drawn_from(bench: Bench, made: Completion, states_TD: Tensor, head_VD: Tensor) -> Completion:
    mask_V = vocabulary_mask(len(head_VD), bench.params.reserved_token_ids)
    logits = next_token_logits(states_TD, head_VD, temperature=bench.params.temperature, mask_V=mask_V)
    keys = torch.from_numpy(row_keys(SEED, [(made.group, made.sample)]))
    tokens, logprobs = draw(logits, gumbel_noise(position_keys(keys, torch.arange(len(logits))), logits.shape[-1]))
    others = np.flatnonzero(tokens.numpy() != made.tokens)
    end = int(others[0]) + 1 if len(others) else len(made.tokens)
    return replace(
        made,
        tokens=tokens[:end].to(torch.int32).numpy(),
        logprobs=logprobs[:end].numpy(),
        hidden=states_TD[:end].float().numpy(),
    )


VARIATIONS: dict[str, Variation] = {
    "64 rows at once": Variation(sample=_batched),
    "7 rows at once": Variation(sample=partial(_batched, max_batch_rows=7)),
    "256 rows at once": Variation(sample=partial(_batched, max_batch_rows=256)),
    "two threads": Variation(sample=_two_threads),
    "prefill of one completion a pass": Variation(
        sample=_batched, examine=lambda bench, rows: bench.examined(rows, micro_batch_tokens=1)
    ),
    "transformers, padded on the left": Variation(sample=partial(_by_transformers, side="left")),
    "transformers, padded on the right": Variation(sample=partial(_by_transformers, side="right")),
    "bfloat16 activations": Variation(
        sample=_batched, examine=lambda bench, rows: bench.examined(rows, rounded=True), is_rounded=True
    ),
}
