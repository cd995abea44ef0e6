"""From a Hugging Face `config.json` to the fields of a `ModelConfig`, and back, for each family of models.

What a family fixes by its code (Qwen2's biases, Gemma's norms) is written out here; the decoder knows features only.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from farflung.model.gemma_config import gemma_features, gemma_table, read_gemma3
from farflung.model.json_values import Unsupported, ids, integer, number, optional_id, require, require_own
from farflung.model.layer_types import GLOBAL, LOCAL, layer_types, require_activation
from farflung.model.local_attention import LocalAttention
from farflung.model.rope_scaling import read_rope, rope_to_hf

if TYPE_CHECKING:
    from farflung.model.config import ModelConfig

ARCHITECTURES: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}
"""Family -> the class that `architectures` names. SmolLM and many others are Llamas."""
_MODEL_TYPES: Mapping[str, str] = {family: family for family in ARCHITECTURES} | {"gemma3": "gemma3_text"}
_SILU = "silu"
_MISTRAL_WINDOW, _QWEN_WINDOW, _SMOLLM3_THETA = 4096, 4096, 2_000_000.0
"""What transformers takes where a config does not say."""
_TIED = ("gemma3", "smollm3")
"""Families that tie the head unless told otherwise."""


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
        "tie_word_embeddings": bool(raw.get("tie_word_embeddings", family in _TIED)),
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
    return table | (gemma_table(config) if config.family == "gemma3" else _llama_table(config))


def _family(raw: Mapping[str, Any]) -> str:
    named = (raw.get("architectures") or [None])[0]
    for family, architecture in ARCHITECTURES.items():
        if named == architecture:
            return family
    raise Unsupported(f"config.json names the architecture {named!r}, which the own decoder does not have")


def _require_plain(raw: Mapping[str, Any]) -> None:
    require_own(not raw.get("mlp_bias", False), "mlp_bias is true: the own decoder has no biases in the MLP")
    require(
        "quantization_config" not in raw,
        "config.json has a quantization_config: quantised weights are not supported; convert to bf16 or fp32 first",
    )


# -- families -----------------------------------------------------------------------------------------------------


def _read_llama(raw: Mapping[str, Any], default_theta: float = 10_000.0) -> dict[str, Any]:
    require_activation(raw, "hidden_act", _SILU)
    bias = bool(raw.get("attention_bias", False))
    theta, scaling = read_rope(raw, default_theta)
    return {"rope_theta": theta, "rope_scaling": scaling, "attention_bias": bias, "attention_output_bias": bias}


def _read_qwen2(raw: Mapping[str, Any]) -> dict[str, Any]:
    biases = {"attention_bias": True, "local_attention": _qwen_windows(raw)}
    return _read_llama({**raw, "attention_bias": False}) | biases


def _read_qwen3(raw: Mapping[str, Any]) -> dict[str, Any]:
    return _read_llama(raw) | {"qk_norm": True, "local_attention": _qwen_windows(raw)}


def _read_mistral(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A Llama that looks back a bounded number of tokens in every layer, or in none."""
    num_layers = integer(raw, "num_hidden_layers")
    is_local = raw.get("sliding_window", _MISTRAL_WINDOW) is not None
    window = integer(raw, "sliding_window", default=_MISTRAL_WINDOW)
    local = LocalAttention(window=window, is_local=(True,) * num_layers) if is_local else None
    return _read_llama({**raw, "attention_bias": False}) | {"local_attention": local}


def _read_smollm3(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A Llama with layers that know no positions."""
    num_layers = integer(raw, "num_hidden_layers")
    interval = integer(raw, "no_rope_layer_interval", default=4)
    require(interval >= 1, f"no_rope_layer_interval is {interval}: it must be at least 1")
    rotated = raw.get("no_rope_layers")  # 1 where a layer is rotated, whatever the name says
    if rotated is None:
        rotated = [int((index + 1) % interval != 0) for index in range(num_layers)]
    require(
        isinstance(rotated, list) and len(rotated) >= num_layers,
        f"no_rope_layers is {str(rotated)[:100]}: it must have a number for each of {num_layers} layers",
    )
    unrotated = tuple(index for index in range(num_layers) if not rotated[index])
    kinds = [LOCAL if index in unrotated else GLOBAL for index in range(num_layers)]
    return _read_llama(raw, default_theta=_SMOLLM3_THETA) | {
        "unrotated_layers": unrotated,
        "local_attention": _optional_windows(raw, kinds),
    }


def _qwen_windows(raw: Mapping[str, Any]) -> LocalAttention | None:
    num_layers = integer(raw, "num_hidden_layers")
    first_local = integer(raw, "max_window_layers", default=28)
    return _optional_windows(raw, [LOCAL if index >= first_local else GLOBAL for index in range(num_layers)])


def _optional_windows(raw: Mapping[str, Any], default_kinds: list[str]) -> LocalAttention | None:
    """Local layers of families that have them only where `use_sliding_window` says so."""
    if not raw.get("use_sliding_window", False) or raw.get("sliding_window", _QWEN_WINDOW) is None:
        return None
    kinds = layer_types(raw, default_kinds)
    window = integer(raw, "sliding_window", default=_QWEN_WINDOW)
    return LocalAttention(window=window, is_local=tuple(kind == LOCAL for kind in kinds)) if LOCAL in kinds else None


_READERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "llama": _read_llama,
    "qwen2": _read_qwen2,
    "qwen3": _read_qwen3,
    "gemma3": read_gemma3,
    "mistral": _read_mistral,
    "smollm3": _read_smollm3,
}


def _fixed_by_family(config: "ModelConfig") -> dict[str, Any]:
    """Features that the family's class has without asking, by name of the field."""
    no_output_bias = {"attention_output_bias": False}
    if config.family == "gemma3":
        return no_output_bias | {"attention_bias": False, "unrotated_layers": ()} | gemma_features(config.hidden_size)
    plain = {
        "activation": "silu",
        "norm_offset": 0.0,
        "sandwich_norms": False,
        "embedding_scale": 1.0,
        "attention_scale": None,
        "qk_norm": config.family == "qwen3",
    }
    if config.family != "smollm3":
        plain |= {"unrotated_layers": ()}
    match config.family:
        case "llama":
            return plain | {"local_attention": None, "attention_output_bias": config.attention_bias}
        case "qwen2":
            return plain | no_output_bias | {"attention_bias": True}
        case "mistral":
            return plain | no_output_bias | {"attention_bias": False}
    return plain | {"attention_output_bias": config.attention_bias}


def _llama_table(config: "ModelConfig") -> dict[str, Any]:
    local = config.local_attention
    require(
        local is None or local.rope_theta is None,
        f"local layers have a rotary base of their own: {ARCHITECTURES[config.family]} has not; "
        "the model cannot be saved as one",
    )
    table: dict[str, Any] = {
        "hidden_act": _SILU,
        "rope_theta": config.rope_theta,
        "rope_scaling": rope_to_hf(config.rope_scaling),
    }
    if config.family in ("llama", "qwen3", "smollm3"):
        table["attention_bias"] = config.attention_bias
    if config.family in ("llama", "smollm3"):
        table["mlp_bias"] = False
    if config.family == "smollm3":
        table["no_rope_layers"] = [int(index not in config.unrotated_layers) for index in range(config.num_layers)]
    if config.family == "mistral":
        require(local is None or all(local.is_local), "MistralForCausalLM has a window in every layer or in none")
        table["sliding_window"] = None if local is None else local.window
    elif local is not None:
        kinds = [LOCAL if is_local else GLOBAL for is_local in local.is_local]
        table |= {"use_sliding_window": True, "sliding_window": local.window, "layer_types": kinds}
    if local is not None and config.family.startswith("qwen"):
        table["max_window_layers"] = local.is_local.index(True)
    return table
