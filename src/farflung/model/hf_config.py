"""From a Hugging Face `config.json` to the fields of a `ModelConfig`, and back, for each family of models.

What a family fixes by its code (Qwen2's biases, Gemma's norms) is written out here; the decoder knows features only.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from farflung.errors import UserError
from farflung.model.json_values import ids, integer, number, optional_id, require
from farflung.model.local_attention import LocalAttention
from farflung.model.rope_scaling import RopeScaling, read_rope, rope_to_hf

if TYPE_CHECKING:
    from farflung.model.config import ModelConfig

ARCHITECTURES: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
}
"""Family -> the class that `architectures` names. SmolLM and many others are Llamas."""
_MODEL_TYPES: Mapping[str, str] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text"}
_SILU, _GELU_TANH = "silu", "gelu_pytorch_tanh"
_GEMMA_PATTERN = 6
"""Every sixth layer of Gemma 3 sees everything, where `layer_types` does not say."""
_LOCAL, _GLOBAL = "sliding_attention", "full_attention"


def read_fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of `ModelConfig`.

    Raises:
        UserError: an architecture or feature that the decoder lacks, or a missing or broken value.
    """
    family = _family(raw)
    _require_plain(raw)
    hidden_size, num_heads = integer(raw, "hidden_size"), integer(raw, "num_attention_heads")
    fields = {
        "family": family,
        "vocab_size": integer(raw, "vocab_size"),
        "hidden_size": hidden_size,
        "intermediate_size": integer(raw, "intermediate_size"),
        "num_layers": integer(raw, "num_hidden_layers"),
        "num_heads": num_heads,
        "num_kv_heads": integer(raw, "num_key_value_heads", default=num_heads),
        "head_dim": integer(raw, "head_dim", default=hidden_size // max(num_heads, 1)),
        "rms_norm_eps": number(raw, "rms_norm_eps", default=1e-6),
        "tie_word_embeddings": bool(raw.get("tie_word_embeddings", family == "gemma3")),
        "max_position_embeddings": integer(raw, "max_position_embeddings", default=2048),
        "bos_token_id": optional_id(raw, "bos_token_id"),
        "eos_token_ids": ids(raw, "eos_token_id"),
        "pad_token_id": optional_id(raw, "pad_token_id"),
    }
    return fields | _READERS[family](raw)


def to_table(config: "ModelConfig") -> dict[str, Any]:
    """A `config.json` that transformers loads as the family's class.

    Raises:
        UserError: a feature that the class does not have.
    """
    for name, value in _fixed_by_family(config).items():
        require(
            getattr(config, name) == value,
            f"{name} is {getattr(config, name)}: {ARCHITECTURES[config.family]} has {value}; "
            "the model cannot be saved as one",
        )
    eos_ids = list(config.eos_token_ids)
    table = {
        "architectures": [ARCHITECTURES[config.family]],
        "model_type": _MODEL_TYPES[config.family],
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_word_embeddings,
        "attention_dropout": 0.0,
        "max_position_embeddings": config.max_position_embeddings,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": eos_ids[0] if len(eos_ids) == 1 else (eos_ids or None),
        "pad_token_id": config.pad_token_id,
    }
    return table | (_gemma_table(config) if config.family == "gemma3" else _llama_table(config))


def _family(raw: Mapping[str, Any]) -> str:
    named = (raw.get("architectures") or [None])[0]
    for family, architecture in ARCHITECTURES.items():
        if named == architecture:
            return family
    raise UserError(f"config.json names the architecture {named!r}: supported are {', '.join(ARCHITECTURES.values())}")


def _require_plain(raw: Mapping[str, Any]) -> None:
    require(not raw.get("mlp_bias", False), "mlp_bias is true: biases in the MLP are not supported")
    require(
        "quantization_config" not in raw,
        "config.json has a quantization_config: quantised weights are not supported; convert to bf16 or fp32 first",
    )


# -- families -----------------------------------------------------------------------------------------------------


def _read_llama(raw: Mapping[str, Any]) -> dict[str, Any]:
    _require_activation(raw, "hidden_act", _SILU)
    bias = bool(raw.get("attention_bias", False))
    theta, scaling = read_rope(raw)
    return {"rope_theta": theta, "rope_scaling": scaling, "attention_bias": bias, "attention_output_bias": bias}


def _read_qwen2(raw: Mapping[str, Any]) -> dict[str, Any]:
    _require_no_window(raw)
    return _read_llama({**raw, "attention_bias": False}) | {"attention_bias": True}


def _read_qwen3(raw: Mapping[str, Any]) -> dict[str, Any]:
    _require_no_window(raw)
    return _read_llama(raw) | {"qk_norm": True}


def _read_gemma3(raw: Mapping[str, Any]) -> dict[str, Any]:
    _require_activation(raw, "hidden_activation", _GELU_TANH)
    for key in ("final_logit_softcapping", "attn_logit_softcapping", "use_bidirectional_attention", "attention_bias"):
        require(not raw.get(key), f"{key} is {raw.get(key)!r}: it is not supported")
    num_layers = integer(raw, "num_hidden_layers")
    theta, scaling, local_theta = _gemma_ropes(raw)
    return {
        **_gemma_features(integer(raw, "hidden_size")),
        "attention_scale": number(raw, "query_pre_attn_scalar", default=256.0) ** -0.5,
        "rope_theta": theta,
        "rope_scaling": scaling,
        "local_attention": LocalAttention(
            window=integer(raw, "sliding_window", default=4096),
            rope_theta=local_theta,
            is_local=tuple(kind == _LOCAL for kind in _layer_types(raw, num_layers)),
        ),
    }


_READERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "llama": _read_llama,
    "qwen2": _read_qwen2,
    "qwen3": _read_qwen3,
    "gemma3": _read_gemma3,
}


def _gemma_features(hidden_size: int) -> dict[str, Any]:
    """What every Gemma 3 has, whatever its config says."""
    return {
        "activation": "gelu_tanh",
        "norm_offset": 1.0,
        "sandwich_norms": True,
        "qk_norm": True,
        "embedding_scale": hidden_size**0.5,
    }


def _gemma_ropes(raw: Mapping[str, Any]) -> tuple[float, RopeScaling, float]:
    """(global base, global scaling, local base) from either spelling."""
    params = raw.get("rope_parameters")
    if isinstance(params, Mapping) and _GLOBAL in params:
        theta, scaling = read_rope({"rope_parameters": params[_GLOBAL]})
        local_theta, local_scaling = read_rope({"rope_parameters": params.get(_LOCAL)})
        require(local_scaling is None, "the local layers' rope is scaled: that is not supported")
        return theta, scaling, local_theta
    theta, scaling = read_rope({"rope_theta": 1_000_000.0, **raw})
    return theta, scaling, number(raw, "rope_local_base_freq", default=10_000.0)


def _layer_types(raw: Mapping[str, Any], num_layers: int) -> list[str]:
    given = raw.get("layer_types")
    if given is None:
        pattern = integer(raw, "sliding_window_pattern", default=_GEMMA_PATTERN)
        return [_LOCAL if (index + 1) % pattern else _GLOBAL for index in range(num_layers)]
    require(
        isinstance(given, list) and len(given) == num_layers and all(kind in (_LOCAL, _GLOBAL) for kind in given),
        f"layer_types is {str(given)[:100]}: it must name {_LOCAL} or {_GLOBAL} for each of {num_layers} layers",
    )
    return list(given)


def _require_activation(raw: Mapping[str, Any], key: str, supported: str) -> None:
    activation = raw.get(key, supported)
    require(activation == supported, f"{key} is {activation!r}: only {supported!r} is supported")


def _require_no_window(raw: Mapping[str, Any]) -> None:
    require(not raw.get("use_sliding_window", False), "use_sliding_window is true: it is not supported for Qwen")


def _fixed_by_family(config: "ModelConfig") -> dict[str, Any]:
    """Features that the family's class has without asking, by name of the field."""
    if config.family == "gemma3":
        biases = {"attention_bias": False, "attention_output_bias": False}
        return biases | _gemma_features(config.hidden_size)
    plain = {
        "activation": "silu",
        "norm_offset": 0.0,
        "sandwich_norms": False,
        "embedding_scale": 1.0,
        "attention_scale": None,
        "local_attention": None,
        "qk_norm": config.family == "qwen3",
    }
    if config.family == "qwen2":
        return plain | {"attention_bias": True, "attention_output_bias": False}
    return plain | {"attention_output_bias": config.attention_bias}


def _llama_table(config: "ModelConfig") -> dict[str, Any]:
    table: dict[str, Any] = {
        "hidden_act": _SILU,
        "rope_theta": config.rope_theta,
        "rope_scaling": rope_to_hf(config.rope_scaling),
    }
    if config.family != "qwen2":
        table["attention_bias"] = config.attention_bias
    if config.family == "llama":
        table["mlp_bias"] = False
    return table


def _gemma_table(config: "ModelConfig") -> dict[str, Any]:
    local = config.local_attention
    if local is None:
        raise UserError("local_attention is none: Gemma3ForCausalLM has local layers; the model cannot be saved as one")
    scaling = rope_to_hf(config.rope_scaling) or {"rope_type": "default"}
    return {
        "hidden_activation": _GELU_TANH,
        "query_pre_attn_scalar": round(config.score_scale**-2),
        "sliding_window": local.window,
        "layer_types": [_LOCAL if is_local else _GLOBAL for is_local in local.is_local],
        "rope_parameters": {
            _GLOBAL: {"rope_theta": config.rope_theta, **scaling},
            _LOCAL: {"rope_theta": local.rope_theta, "rope_type": "default"},
        },
    }
