"""Packed documents, with prompts shared and without, against one document at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from farflung.model import cells
from farflung.model.config import ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.factory import random_state
from farflung.model.weights import load_hf_state
from farflung.rl.batch import flatten
from farflung.rl.packing import split_micro_batches
from farflung.rl.types import TrainingSample
from farflung.trainer.forward import batch_logprobs

VOCAB = 24


def a_decoder(dtype: torch.dtype = torch.float32, **options: Any) -> Decoder:
    config = ModelConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
    )
    decoder = Decoder(config, dtype=dtype, **options)
    load_hf_state(decoder, random_state(config, seed=3, std=0.2))
    return decoder


def a_sample(number: int, prompt: int, completion: int, group: int) -> TrainingSample:
    """Prompts depend on group and length alone."""
    prompt_tokens = np.random.default_rng([1, group]).integers(0, VOCAB, prompt)
    own_tokens = np.random.default_rng([2, number]).integers(0, VOCAB, completion)
    return TrainingSample(
        tokens=np.array([*prompt_tokens, *own_tokens], dtype=np.int32),
        num_prompt_tokens=prompt,
        behaviour_logprobs=np.zeros(completion, dtype=np.float32),
        advantages=np.ones(completion, dtype=np.float32),
        loss_mask=np.ones(completion, dtype=np.bool_),
        policy_version=0,
        slot=0,
        group=group,
        sample=number,
    )


def outcome(decoder: Decoder, parts: Sequence[Sequence[TrainingSample]]) -> tuple[dict[int, Tensor], list[Tensor]]:
    """Logprobs of each sample, and the gradient of a sum in which every token weighs differently."""
    decoder.zero_grad(set_to_none=True)
    logprobs: dict[int, Tensor] = {}
    for part in parts:
        logprobs_M, _ = batch_logprobs(decoder, flatten(part), 0.9, (0,))
        pieces = logprobs_M.split([sample.num_completion_tokens for sample in part])
        loss = torch.zeros((), dtype=logprobs_M.dtype)
        for sample, piece in zip(part, pieces, strict=True):
            weights = torch.linspace(-1, 1 + sample.sample, len(piece), dtype=piece.dtype)
            loss = loss + torch.where(piece.isinf(), 0, piece * weights).sum()
            logprobs[sample.sample] = piece.detach()
        loss.backward()
    gradients = [parameter.grad for parameter in decoder.parameters()]
    return logprobs, [gradient for gradient in gradients if gradient is not None]


groups = st.lists(
    st.tuples(st.integers(1, 20), st.lists(st.integers(1, 20), min_size=1, max_size=4)), min_size=1, max_size=5
)


def samples_of(drawn: list[tuple[int, list[int]]]) -> list[TrainingSample]:
    pairs = [(prompt, length, group) for group, (prompt, lengths) in enumerate(drawn) for length in lengths]
    return [a_sample(number, *pair) for number, pair in enumerate(pairs)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
@settings(max_examples=25)
@given(groups, st.sampled_from([40, 80, 1000]))
def test_packed_is_unpacked(
    dtype: torch.dtype, tolerance: float, drawn: list[tuple[int, list[int]]], max_tokens: int
) -> None:
    """Positions restart, documents do not see each other, what a shared prompt learns adds up."""
    samples, decoder = samples_of(drawn), a_decoder(dtype)
    packed, gradients = outcome(decoder, split_micro_batches(samples, max_tokens))
    alone, expected = outcome(decoder, [[sample] for sample in samples])
    for number, logprobs in alone.items():
        torch.testing.assert_close(packed[number], logprobs, rtol=tolerance, atol=tolerance)
    right = torch.cat([gradient.flatten() for gradient in expected])
    error = torch.cat([gradient.flatten() for gradient in gradients]) - right
    assert error.norm() <= 3 * tolerance * right.norm()  # a gradient is a sum in which large terms cancel


def test_prefixes_whose_mask_would_be_too_large_are_attended_to_without(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [a_sample(number, 9, 3, group=number // 4) for number in range(8)]
    aligned, gradients = outcome(a_decoder(), [samples])
    monkeypatch.setattr(cells, "MAX_MASK_NUMBERS", 0)
    whole, expected = outcome(a_decoder(), [samples])
    for number, logprobs in whole.items():
        torch.testing.assert_close(aligned[number], logprobs, rtol=1e-6, atol=1e-6)
    for gradient, right in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, right, rtol=1e-5, atol=1e-5)


def test_a_shared_prompt_is_computed_once() -> None:
    samples = [a_sample(number, 10, 3, group=number // 4) for number in range(8)]
    assert len(flatten(samples).tokens_N) == 2 * (10 + 4 * 2)


def test_packing_is_not_exact_by_accident() -> None:
    """A prefix of the wrong prompt changes the logprobs."""
    samples = [a_sample(0, 10, 3, group=0), a_sample(1, 10, 3, group=1)]
    honest, _ = outcome(a_decoder(), [samples])
    wrong = samples[1].tokens.copy()
    wrong[0] = (wrong[0] + 1) % VOCAB
    object.__setattr__(samples[1], "tokens", wrong)
    other, _ = outcome(a_decoder(), [samples])
    assert torch.equal(honest[0], other[0])
    assert (honest[1] - other[1]).abs().max() > 1e-3


def test_recomputed_activations_give_the_same_gradient_bit_for_bit() -> None:
    samples = [a_sample(number, 5 + number, 3, group=number // 2) for number in range(6)]
    kept, expected = outcome(a_decoder(), [samples])
    recomputed, gradients = outcome(a_decoder(keeps_activations=False), [samples])
    assert all(torch.equal(recomputed[number], kept[number]) for number in kept)
    assert all(torch.equal(left, right) for left, right in zip(gradients, expected, strict=True))


def test_recomputed_activations_are_not_kept() -> None:
    """Of a layer only its input is alive between the passes."""
    samples = [a_sample(number, 5, 60, group=number) for number in range(4)]

    def kept_bytes(**options: Any) -> int:
        sizes: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        decoder, batch = a_decoder(**options), flatten(samples)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            batch_logprobs(decoder, batch)
        return sum(sizes.values())

    assert kept_bytes(keeps_activations=False) < 0.4 * kept_bytes()
