"""Shapes of decoders: rules, and the way from and to a Hugging Face config."""

from typing import Any

import pytest

from farflung.errors import UserError
from farflung.model.config import LinearRope, Llama3Rope, ModelConfig
from farflung.model.hf_config import ARCHITECTURES


def _sizes(**changes: Any) -> dict[str, Any]:
    sizes = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
    }
    return {**sizes, **changes}


def _llama(**changes: Any) -> dict[str, Any]:
    raw = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "max_position_embeddings": 128,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return {**raw, **changes}


_LLAMA3 = Llama3Rope(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
_LLAMA3_RAW = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_layers": 0}, ["num_layers is 0", "at least 1"]),
        ({"head_dim": 7}, ["head_dim is 7", "even"]),
        ({"num_kv_heads": 3}, ["num_kv_heads is 3", "divide num_heads (4)"]),
        ({"rope_theta": 0.0}, ["rope_theta is 0.0", "above 0"]),
        ({"rms_norm_eps": 0.0}, ["rms_norm_eps is 0.0", "above 0"]),
        ({"max_position_embeddings": 0}, ["max_position_embeddings is 0"]),
        ({"eos_token_ids": (3, 64)}, ["64", "outside the vocabulary of 64"]),
        ({"pad_token_id": -1}, ["-1", "outside the vocabulary"]),
    ],
)
def test_a_broken_rule_names_value_and_rule(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        ModelConfig(**_sizes(**changes))
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_llama_config_is_read_whole() -> None:
    assert ModelConfig.from_hf(_llama(eos_token_id=[2, 5], pad_token_id=0)) == ModelConfig(
        **_sizes(),
        rope_theta=500_000.0,
        rms_norm_eps=1e-5,
        max_position_embeddings=128,
        bos_token_id=1,
        eos_token_ids=(2, 5),
        pad_token_id=0,
    )


def test_key_value_heads_default_to_query_heads() -> None:
    raw = _llama()
    del raw["num_key_value_heads"]
    assert ModelConfig.from_hf(raw).num_kv_heads == 4


@pytest.mark.parametrize(
    ("changes", "scaling"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, LinearRope(factor=2.0)),
        ({"rope_scaling": {"rope_type": "llama3", **_LLAMA3_RAW}}, _LLAMA3),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 500_000.0, **_LLAMA3_RAW}}, _LLAMA3),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}}, None),
        ({"rope_scaling": None}, None),
    ],
)
def test_both_spellings_of_rope_are_read(changes: dict[str, Any], scaling: object) -> None:
    config = ModelConfig.from_hf(_llama(**changes))
    assert (config.rope_theta, config.rope_scaling) == (500_000.0, scaling)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM"),
        ({"architectures": None}, "None"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_scaling": {"rope_type": "proportional", "factor": 2.0}}, "proportional"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}}, "head_dim / 2"),
        ({"rope_scaling": {"rope_type": "longrope", "short_factor": 1.0}}, "list of numbers"),
        ({"rope_scaling": [1]}, "[1]"),
        ({"hidden_size": "64"}, "hidden_size is '64'"),
        ({"rms_norm_eps": True}, "rms_norm_eps is True"),
        ({"eos_token_id": [2, "x"]}, "eos_token_id is 'x'"),
        ({"num_attention_heads": 0}, "num_heads is 0"),
    ],
)
def test_what_is_not_supported_is_named(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError) as caught:
        ModelConfig.from_hf(_llama(**changes))
    assert word in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rope_scaling": _LLAMA3},
        {"rope_scaling": LinearRope(factor=4.0)},
        {"tie_word_embeddings": True, "num_kv_heads": 4, "head_dim": 16},
        {"attention_bias": True, "attention_output_bias": True},
        {"bos_token_id": 1, "eos_token_ids": (2,), "pad_token_id": 0},
        {"eos_token_ids": (2, 3)},
    ],
)
def test_the_way_out_and_back_loses_nothing(changes: dict[str, Any]) -> None:
    config = ModelConfig(**_sizes(**changes))
    assert ModelConfig.from_hf(config.to_hf()) == config


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "gemma3"])
def test_every_family_goes_out_and_comes_back(family: str) -> None:
    config = ModelConfig.from_hf(_llama(architectures=[ARCHITECTURES[family]], hidden_act="silu"))
    assert config.family == family
    assert ModelConfig.from_hf(config.to_hf()) == config


@pytest.mark.parametrize(
    ("family", "changes", "word"),
    [
        ("qwen2", {"use_sliding_window": True, "sliding_window": 0, "max_window_layers": 0}, "window is 0"),
        ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers"),
        ("smollm3", {"no_rope_layer_interval": 0}, "no_rope_layer_interval"),
        ("mistral", {"sliding_window": 0}, "window is 0"),
        ("gemma3", {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ("gemma3", {"layer_types": ["full_attention"]}, "layer_types"),
        ("gemma3", {"layer_types": ["full_attention", "chunked_attention"]}, "layer_types"),
        ("gemma3", {"sliding_window": 0}, "window is 0"),
        ("gemma3", {"hidden_activation": "silu"}, "hidden_activation"),
    ],
)
def test_what_a_family_lacks_here_is_named(family: str, changes: dict[str, Any], word: str) -> None:
    raw = _llama(architectures=[ARCHITECTURES[family]])
    if family == "gemma3":
        raw |= {"hidden_activation": "gelu_pytorch_tanh"}
    with pytest.raises(UserError, match=word):
        ModelConfig.from_hf(raw | changes)


@pytest.mark.parametrize("changes", [{"qk_norm": True}, {"attention_bias": True}, {"norm_offset": 1.0}])
def test_a_feature_that_the_saved_class_lacks_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="LlamaForCausalLM"):
        ModelConfig(**_sizes(**changes)).to_hf()
