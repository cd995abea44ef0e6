"""Gemma 3's `config.json` to the fields of a `ModelConfig`, and back: local layers, two rotary bases."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from farflung.errors import UserError
from farflung.model.json_values import integer, number, require_own
from farflung.model.layer_types import GLOBAL, LOCAL, layer_types, require_activation
from farflung.model.local_attention import LocalAttention
from farflung.model.rope_scaling import RopeScaling, read_rope, rope_to_hf

if TYPE_CHECKING:
    from farflung.model.config import ModelConfig

_GELU_TANH = "gelu_pytorch_tanh"
_PATTERN = 6
"""Every sixth layer sees everything, where `layer_types` does not say."""


def read_gemma3(raw: Mapping[str, Any]) -> dict[str, Any]:
    require_activation(raw, "hidden_activation", _GELU_TANH)
    for key in ("final_logit_softcapping", "attn_logit_softcapping", "use_bidirectional_attention", "attention_bias"):
        require_own(not raw.get(key), f"{key} is {raw.get(key)!r}: the own decoder has it not")
    num_layers = integer(raw, "num_hidden_layers")
    pattern = integer(raw, "sliding_window_pattern", default=_PATTERN)
    kinds = [LOCAL if (index + 1) % pattern else GLOBAL for index in range(num_layers)]
    theta, scaling, local_theta = _ropes(raw)
    return {
        **gemma_features(integer(raw, "hidden_size")),
        "attention_scale": number(raw, "query_pre_attn_scalar", default=256.0) ** -0.5,
        "rope_theta": theta,
        "rope_scaling": scaling,
        "local_attention": LocalAttention(
            window=integer(raw, "sliding_window", default=4096),
            rope_theta=local_theta,
            is_local=tuple(kind == LOCAL for kind in layer_types(raw, kinds)),
        ),
    }


def gemma_features(hidden_size: int) -> dict[str, Any]:
    """What every Gemma 3 has, whatever its config says."""
    return {
        "activation": "gelu_tanh",
        "norm_offset": 1.0,
        "sandwich_norms": True,
        "qk_norm": True,
        "embedding_scale": hidden_size**0.5,
    }


def _ropes(raw: Mapping[str, Any]) -> tuple[float, RopeScaling, float]:
    """(global base, global scaling, local base) from either spelling."""
    params = raw.get("rope_parameters")
    if isinstance(params, Mapping) and GLOBAL in params:
        theta, scaling = read_rope({**raw, "rope_parameters": params[GLOBAL]})
        local_theta, local_scaling = read_rope({**raw, "rope_parameters": params.get(LOCAL)})
        require_own(local_scaling is None, "the local layers' rope is scaled: the own decoder has it not")
        return theta, scaling, local_theta
    theta, scaling = read_rope({"rope_theta": 1_000_000.0, **raw})
    return theta, scaling, number(raw, "rope_local_base_freq", default=10_000.0)


def gemma_table(config: "ModelConfig") -> dict[str, Any]:
    local = config.local_attention
    if local is None:
        raise UserError("local_attention is none: Gemma3ForCausalLM has local layers; the model cannot be saved as one")
    scaling = rope_to_hf(config.rope_scaling) or {"rope_type": "default"}
    return {
        "hidden_activation": _GELU_TANH,
        "query_pre_attn_scalar": round(config.score_scale**-2),
        "sliding_window": local.window,
        "layer_types": [LOCAL if is_local else GLOBAL for is_local in local.is_local],
        "rope_parameters": {
            GLOBAL: {"rope_theta": config.rope_theta, **scaling},
            LOCAL: {"rope_theta": local.rope_theta, "rope_type": "default"},
        },
    }
