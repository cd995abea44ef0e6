"""A decoder's tensors under their Hugging Face names, in and out, as safetensors bytes.

The decoder fuses q, k, v and gate, up; this module is the only place that knows it. Published bf16 weights are the
policy; float32 masters belong to the trainer alone: `publishable_state(masters)` is what everybody else computes with.
Knows no files and no optimizer.
"""

import json
from collections.abc import Iterable, Mapping

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from farflung.errors import PeerFault, UserError
from farflung.model.config import ModelConfig
from farflung.model.decoder import Decoder, DecoderLayer
from farflung.wire.canonical import MALFORMED_RECORD

MAX_HEADER_BYTES = 16 << 20
"""Longest safetensors header that is parsed: a 400-layer model needs about 1 MB."""
MAX_TENSORS = 65_536
_HEADER_LENGTH_BYTES = 8
_FLOAT_DTYPES = {"F32", "BF16", "F16", "F64"}


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of a model by Hugging Face name, in the order of the forward pass."""
    size, middle, head = config.hidden_size, config.intermediate_size, config.head_dim
    num_query, num_kv = config.num_heads * head, config.num_kv_heads * head
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, size)}
    for index in range(config.num_layers):
        layer: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (size,),
            "self_attn.q_proj.weight": (num_query, size),
            "self_attn.k_proj.weight": (num_kv, size),
            "self_attn.v_proj.weight": (num_kv, size),
            "self_attn.o_proj.weight": (size, num_query),
            "post_attention_layernorm.weight": (size,),
            "mlp.gate_proj.weight": (middle, size),
            "mlp.up_proj.weight": (middle, size),
            "mlp.down_proj.weight": (size, middle),
        }
        if config.attention_bias:
            layer |= {
                "self_attn.q_proj.bias": (num_query,),
                "self_attn.k_proj.bias": (num_kv,),
                "self_attn.v_proj.bias": (num_kv,),
            }
        if config.attention_output_bias:
            layer |= {"self_attn.o_proj.bias": (size,)}
        if config.qk_norm:
            layer |= {"self_attn.q_norm.weight": (head,), "self_attn.k_norm.weight": (head,)}
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (size,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, size)
    return shapes


def state_to_hf(decoder: Decoder) -> dict[str, Tensor]:
    """Hugging Face names -> detached views of the decoder's own tensors, in `expected_shapes` order.

    The views share memory: writing to one writes to the decoder; clone to keep a version.
    """
    views = _hf_views(decoder)
    return {name: views[name] for name in expected_shapes(decoder.config)}


def load_hf_state(decoder: Decoder, state: Mapping[str, Tensor]) -> None:
    """Copy a state into the decoder, converting to its dtype.

    A tied model may bring an `lm_head.weight` if it equals the embedding.

    Raises:
        UserError: tensors missing, unexpected or of another shape; nothing is changed then.
    """
    check_state(decoder.config, state)
    for name, view in _hf_views(decoder).items():
        view.copy_(state[name])


def check_state(config: ModelConfig, state: Mapping[str, Tensor]) -> None:
    """Raises UserError: tensors missing, unexpected or of another shape, each named."""
    shapes = expected_shapes(config)
    missing = [name for name in shapes if name not in state]
    unexpected = [name for name in state if name not in shapes and not _is_tied_copy(config, state, name)]
    misshapen = [
        f"{name} has shape {tuple(state[name].shape)} where config.json asks for {shape}"
        for name, shape in shapes.items()
        if name in state and tuple(state[name].shape) != shape
    ]
    problems = [
        *([f"missing: {_some(missing)}"] if missing else []),
        *([f"unexpected: {_some(unexpected)}"] if unexpected else []),
        *([_some(misshapen)] if misshapen else []),
    ]
    if problems:
        raise UserError(f"weights and config do not belong together; {'; '.join(problems)}")


def publishable_state(masters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """bf16 copies (round to nearest even) of float32 masters: the policy that is published and sampled from."""
    return {name: tensor.detach().to(torch.bfloat16, copy=True) for name, tensor in masters.items()}


def round_to_bf16_(tensors: Iterable[Tensor]) -> None:
    """Round float32 tensors in place to values that bf16 holds exactly: what everybody else computes with."""
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(tensor.to(torch.bfloat16))


def to_safetensors_bytes(state: Mapping[str, Tensor], dtype: torch.dtype = torch.bfloat16) -> bytes:
    """One safetensors file; the same state gives the same bytes."""
    tensors = {name: state[name].detach().to(device="cpu", dtype=dtype).contiguous() for name in sorted(state)}
    data: bytes = safetensors.torch.save(tensors, metadata={"format": "pt"})
    return data


def from_safetensors_bytes(data: bytes, max_bytes: int) -> dict[str, Tensor]:
    """Tensors of a safetensors file from anybody.

    Raises:
        PeerFault: longer than `max_bytes`, or not a well-formed file of floating-point tensors.
    """
    if len(data) > max_bytes:
        raise PeerFault(MALFORMED_RECORD, f"safetensors of {len(data)} bytes, at most {max_bytes} allowed")
    _check_header(data)
    try:
        state: dict[str, Tensor] = safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise PeerFault(MALFORMED_RECORD, f"safetensors: {error}") from error
    return state


def _check_header(data: bytes) -> None:
    """Bounds that hold before the library parses or allocates anything."""
    num_header_bytes = int.from_bytes(data[:_HEADER_LENGTH_BYTES], "little")
    available = len(data) - _HEADER_LENGTH_BYTES
    if not 2 <= num_header_bytes <= min(available, MAX_HEADER_BYTES):
        raise PeerFault(
            MALFORMED_RECORD,
            f"safetensors header of {num_header_bytes} bytes in a file of {len(data)}, at most {MAX_HEADER_BYTES}",
        )
    try:
        header = json.loads(data[_HEADER_LENGTH_BYTES : _HEADER_LENGTH_BYTES + num_header_bytes])
    except (ValueError, RecursionError) as error:
        raise PeerFault(MALFORMED_RECORD, f"safetensors header: {error}") from error
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        raise PeerFault(MALFORMED_RECORD, f"safetensors header is not a table of at most {MAX_TENSORS} tensors")
    for name, entry in header.items():
        if name != "__metadata__" and (not isinstance(entry, dict) or entry.get("dtype") not in _FLOAT_DTYPES):
            raise PeerFault(MALFORMED_RECORD, f"safetensors tensor {name[:80]!r} is not floating point")


def _hf_views(decoder: Decoder) -> dict[str, Tensor]:
    views = {"model.embed_tokens.weight": decoder.embed_tokens.detach()}
    for index, layer in enumerate(decoder.layers):
        assert isinstance(layer, DecoderLayer)
        views |= {f"model.layers.{index}.{name}": view for name, view in _layer_views(layer).items()}
    views["model.norm.weight"] = decoder.norm.weight.detach()
    if decoder.lm_head is not None:
        views["lm_head.weight"] = decoder.lm_head.detach()
    return views


def _layer_views(layer: DecoderLayer) -> dict[str, Tensor]:
    num_query, num_kv = layer.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
    views: dict[str, Tensor] = {
        "input_layernorm.weight": layer.input_norm.weight,
        "self_attn.o_proj.weight": layer.o_proj.weight,
        "post_attention_layernorm.weight": layer.mlp_norm.weight,
        "mlp.down_proj.weight": layer.down_proj.weight,
    }
    gate, up = layer.gate_up_proj.weight.detach().chunk(2)
    views |= {"mlp.gate_proj.weight": gate, "mlp.up_proj.weight": up}
    for kind, fused in (("weight", layer.qkv_proj.weight), ("bias", layer.qkv_proj.bias)):
        if fused is not None:
            parts = torch.split(fused.detach(), [num_query, num_kv, num_kv])
            views |= {f"self_attn.{part}_proj.{kind}": view for part, view in zip("qkv", parts, strict=True)}
    if layer.o_proj.bias is not None:
        views["self_attn.o_proj.bias"] = layer.o_proj.bias
    if layer.q_norm is not None and layer.k_norm is not None:
        views |= {"self_attn.q_norm.weight": layer.q_norm.weight, "self_attn.k_norm.weight": layer.k_norm.weight}
    return {name: view.detach() for name, view in views.items()}


def _is_tied_copy(config: ModelConfig, state: Mapping[str, Tensor], name: str) -> bool:
    embedding = state.get("model.embed_tokens.weight")
    return (
        config.tie_word_embeddings
        and name == "lm_head.weight"
        and embedding is not None
        and torch.equal(state[name], embedding)
    )


def _some(items: list[str], limit: int = 3) -> str:
    return ", ".join(items[:limit]) + (f" and {len(items) - limit} more" if len(items) > limit else "")
