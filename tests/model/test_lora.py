"""Adapters: unmerged as merged, gradients of the matrices alone."""

from typing import Any

import pytest
import torch
from torch import Tensor

from farflung.engine.forward import MIN_BATCH_ROWS
from farflung.errors import UserError
from farflung.model.adapted import attach, detach, load_adapter, put_adapter, take_gradient
from farflung.model.adapter_files import Adapter
from farflung.model.config import Llama3Rope, LocalAttention, ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.factory import random_state
from farflung.model.layout import SequenceLayout
from farflung.model.lora import A, B, LoraSpec, adapted_modules, adapter_shapes, fresh_adapter, merge, split
from farflung.model.weights import load_hf_state, state_to_hf

_LENGTHS = [3, 40, 11]
_SIZES: dict[str, Any] = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_layers": 3,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
}
FAMILIES = {
    "llama": ModelConfig(
        **_SIZES,
        rope_scaling=Llama3Rope(
            factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16
        ),
    ),
    "qwen2": ModelConfig(**_SIZES, attention_bias=True, tie_word_embeddings=True),
    "qwen3": ModelConfig(**{**_SIZES, "head_dim": 16}, qk_norm=True),
    "gemma3": ModelConfig(
        **{**_SIZES, "num_layers": 6},
        tie_word_embeddings=True,
        qk_norm=True,
        sandwich_norms=True,
        norm_offset=1.0,
        activation="gelu_tanh",
        local_attention=LocalAttention(window=8, rope_theta=1e4, is_local=(True,) * 5 + (False,)),
    ),
}
SPEC = LoraSpec(rank=3, alpha=5.0)


def filled(config: ModelConfig, spec: LoraSpec = SPEC, seed: int = 7) -> dict[str, Tensor]:
    """An adapter that changes much."""
    generator = torch.Generator().manual_seed(seed)
    return {name: 0.1 * torch.randn(shape, generator=generator) for name, shape in adapter_shapes(config, spec).items()}


def tokens() -> Tensor:
    return torch.randint(0, 48, (sum(_LENGTHS),), generator=torch.Generator().manual_seed(0))


def decoder_of(config: ModelConfig, state: dict[str, Tensor]) -> Decoder:
    decoder = Decoder(config)
    load_hf_state(decoder, state)
    return decoder


def adapted(config: ModelConfig, adapter: dict[str, Tensor], spec: LoraSpec = SPEC, *, learns: bool = False) -> Decoder:
    decoder = decoder_of(config, random_state(config, 4, 0.2))
    attach(decoder, spec, requires_grad=learns)
    load_adapter(decoder, adapter, spec)
    return decoder


def logits(decoder: Decoder) -> Tensor:
    return decoder(tokens(), SequenceLayout.from_lengths(_LENGTHS)) @ decoder.lm_head_weight.T


@pytest.mark.parametrize("targets", [SPEC.targets, ("q_proj", "v_proj"), ("k_proj",), ("down_proj", "o_proj")])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_adapter_apart_gives_the_logits_of_the_merged_model(family: str, targets: tuple[str, ...]) -> None:
    config, spec = FAMILIES[family], LoraSpec(rank=3, alpha=5.0, targets=targets)
    adapter = filled(config, spec)
    merged = decoder_of(config, merge(random_state(config, 4, 0.2), adapter, spec))
    with torch.no_grad():
        apart, whole = logits(adapted(config, adapter, spec)), logits(merged)
        base = logits(decoder_of(config, random_state(config, 4, 0.2)))
    torch.testing.assert_close(apart, whole, rtol=0, atol=1e-5)
    assert float((base - whole).abs().max()) > 0.01


def test_a_fresh_adapter_changes_nothing_and_follows_from_its_seed() -> None:
    config = FAMILIES["llama"]
    first, again, other = (fresh_adapter(config, SPEC, seed) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.layers.0.mlp.up_proj" + A], other["model.layers.0.mlp.up_proj" + A])
    assert all(not tensor.any() for name, tensor in first.items() if name.endswith(B))
    bound = config.intermediate_size**-0.5
    largest = float(first["model.layers.0.mlp.down_proj" + A].abs().max())
    assert 0.9 * bound < largest <= bound
    with torch.no_grad():
        assert torch.equal(logits(adapted(config, first)), logits(decoder_of(config, random_state(config, 4, 0.2))))


def test_the_scale_is_alpha_by_rank_or_by_its_root() -> None:
    assert LoraSpec(rank=4, alpha=32.0).scale == 8.0
    assert LoraSpec(rank=4, alpha=32.0, is_rank_stabilised=True).scale == 16.0


@pytest.mark.parametrize("family", FAMILIES)
def test_only_the_matrices_get_a_gradient_and_it_is_that_of_the_whole_weight(family: str) -> None:
    """dB = scale G A^T and dA = scale B^T G, with G the gradient of the merged model's weight."""
    config = FAMILIES[family]
    adapter = filled(config)
    learner = adapted(config, adapter, learns=True)
    logits(learner).sin().sum().backward()
    assert {name.rpartition(".")[2] for name, p in learner.named_parameters() if p.grad is not None} == {"a_RI", "b_OR"}
    gradient = take_gradient(learner, SPEC)
    assert gradient.keys() == adapter.keys()
    assert take_gradient(learner, SPEC) == {}

    whole = decoder_of(config, merge(random_state(config, 4, 0.2), adapter, SPEC))
    logits(whole).sin().sum().backward()
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.copy_(parameter.grad)
    of_weights = state_to_hf(whole)
    for module in adapted_modules(config, SPEC):
        gradient_of_weight = of_weights[f"{module}.weight"]
        for name, expected in (
            (module + A, SPEC.scale * adapter[module + B].T @ gradient_of_weight),
            (module + B, SPEC.scale * gradient_of_weight @ adapter[module + A].T),
        ):
            torch.testing.assert_close(gradient[name], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("rank", [1, 2, 8, 48])
def test_a_row_has_the_same_bits_whatever_else_is_in_the_batch(rank: int) -> None:
    """As without an adapter: from MIN_BATCH_ROWS on. One rank alone would be a matrix-vector product, which differs."""
    config, spec = FAMILIES["llama"], LoraSpec(rank=rank, alpha=4.0, targets=("down_proj",))
    projection = adapted(config, filled(config, spec), spec).layers[0].down_proj
    inputs_NI = torch.randn(64, config.intermediate_size, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        all_rows = projection(inputs_NI)
        for num_rows in range(MIN_BATCH_ROWS, 64):
            assert torch.equal(projection(inputs_NI[:num_rows]), all_rows[:num_rows])


def test_merging_rounds_once_and_splitting_finds_the_adapter_again() -> None:
    config = FAMILIES["qwen3"]
    base, adapter = random_state(config, 4, 0.2), filled(config)
    merged = merge(base, adapter, SPEC)
    assert all(torch.equal(merged[name], base[name]) for name in base if "norm" in name or "embed" in name)
    found = split(merged, base, config, SPEC)
    again = merge(base, found, SPEC)
    assert all(torch.allclose(again[name], merged[name], atol=1e-5) for name in merged)
    half = merge({name: tensor.bfloat16() for name, tensor in base.items()}, adapter, SPEC)
    name = "model.layers.0.mlp.up_proj.weight"
    module = "model.layers.0.mlp.up_proj"
    exact = base[name].bfloat16().double() + SPEC.scale * (adapter[module + B].double() @ adapter[module + A].double())
    assert float((half[name].double() - exact).abs().max()) <= float(exact.abs().max()) * 2**-8


def test_a_split_of_lower_rank_is_the_nearest_one() -> None:
    config, lower = FAMILIES["llama"], LoraSpec(rank=1, alpha=5.0)
    base = random_state(config, 4, 0.2)
    merged = merge(base, filled(config), SPEC)
    found = split(merged, base, config, lower)
    name = "model.layers.1.mlp.up_proj.weight"
    difference = merged[name] - base[name]
    left_over = difference - (merge(base, found, lower)[name] - base[name])
    values = torch.linalg.svdvals(difference)
    assert float(left_over.norm()) == pytest.approx(float(values[1:].norm()), rel=1e-3)


def test_another_adapter_takes_the_place_of_the_first_and_leaves_no_trace() -> None:
    config, other_spec = FAMILIES["llama"], LoraSpec(rank=2, alpha=1.0, targets=("v_proj",))
    decoder = decoder_of(config, random_state(config, 4, 0.2))
    with torch.no_grad():
        base = logits(decoder)
        put_adapter(decoder, Adapter(spec=SPEC, state=filled(config)))
        first = logits(decoder)
        put_adapter(decoder, Adapter(spec=other_spec, state=filled(config, other_spec)))
        second = logits(decoder)
        assert torch.equal(second, logits(adapted(config, filled(config, other_spec), other_spec)))
        assert not torch.equal(first, second)
        detach(decoder)
        assert torch.equal(logits(decoder), base)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda adapter: adapter.pop("model.layers.0.mlp.up_proj" + A), r"up_proj.lora_A.weight is missing"),
        (
            lambda adapter: adapter.update({"model.embed_tokens" + A: torch.zeros(3, 48)}),
            r"embed_tokens.* is unexpected",
        ),
        (
            lambda adapter: adapter.update({"model.layers.0.mlp.up_proj" + A: torch.zeros(2, 32)}),
            r"has shape \(2, 32\), not \(3, 32\)",
        ),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused_and_changes_nothing(change: Any, message: str) -> None:
    config = FAMILIES["llama"]
    decoder = adapted(config, filled(config))
    with torch.no_grad():
        before = logits(decoder)
        bad = filled(config, seed=8)
        change(bad)
        with pytest.raises(UserError, match=message):
            put_adapter(decoder, Adapter(spec=SPEC, state=bad))
        assert torch.equal(logits(decoder), before)


@pytest.mark.parametrize(
    "wrong", [{"rank": 0}, {"targets": ()}, {"targets": ("lm_head",)}, {"targets": ("q_proj",) * 2}]
)
def test_a_spec_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"it must be at least 1|they must be some of"):
        LoraSpec(**{"rank": 2, "alpha": 1.0, **wrong})
