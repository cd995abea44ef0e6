"""A decoder's tensors under their Hugging Face names, in and out, as safetensors bytes.

The decoder fuses q, k, v and orders rotary pairs its own way; this module alone translates. Published
bf16 weights are the policy; float32 masters belong to the trainer alone: `publishable_state(masters)` is what
everybody else computes with.
Knows no files and no optimizer.
"""

from collections.abc import Mapping

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from farflung.errors import PeerFault, UserError
from farflung.model.any_config import AnyConfig
from farflung.model.build import AnyDecoder
from farflung.model.decoder import DecoderLayer
from farflung.model.foreign import library
from farflung.model.foreign.config import ForeignConfig
from farflung.model.foreign.decoder import ForeignDecoder
from farflung.model.rope import pairs_to_halves, pairs_to_neighbours
from farflung.sharding.file_layout import read_layout
from farflung.wire.canonical import MALFORMED_RECORD

MAX_HEADER_BYTES = 16 << 20
"""Longest safetensors header that is parsed; a model of 400 layers needs about 1 MB."""
_FLOAT_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def expected_shapes(config: AnyConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of a model by Hugging Face name, in the order of the forward pass."""
    if isinstance(config, ForeignConfig):
        return dict(library.shapes(config))
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
        if config.sandwich_norms:
            layer |= {"pre_feedforward_layernorm.weight": (size,), "post_feedforward_layernorm.weight": (size,)}
        if config.qk_norm:
            layer |= {"self_attn.q_norm.weight": (head,), "self_attn.k_norm.weight": (head,)}
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (size,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, size)
    return shapes


def state_to_hf(decoder: AnyDecoder) -> dict[str, Tensor]:
    """Detached copies of the decoder's tensors under Hugging Face names, in `expected_shapes` order."""
    if isinstance(decoder, ForeignDecoder):
        return {name: tensor.detach().clone() for name, tensor in decoder.tensors.items()}
    state: dict[str, Tensor] = {
        "model.embed_tokens.weight": decoder.embed_tokens,
        "model.norm.weight": decoder.norm.weight,
    }
    for index, layer in enumerate(decoder.layers):
        state |= {f"model.layers.{index}.{name}": tensor for name, tensor in _split_layer(layer).items()}
    if decoder.lm_head is not None:
        state["lm_head.weight"] = decoder.lm_head
    return {name: state[name].detach().clone() for name in expected_shapes(decoder.config)}


def load_hf_state(decoder: AnyDecoder, state: Mapping[str, Tensor]) -> None:
    """Copy a state into the decoder, converting to its dtype.

    A tied model may bring an `lm_head.weight` if it equals the embedding.

    Raises:
        UserError: tensors missing, unexpected or of another shape; nothing is changed then.
    """
    check_state(decoder.config, state)
    with torch.no_grad():
        if isinstance(decoder, ForeignDecoder):
            for name, tensor in decoder.tensors.items():
                tensor.copy_(state[name])
            return
        decoder.embed_tokens.copy_(state["model.embed_tokens.weight"])
        decoder.norm.weight.copy_(state["model.norm.weight"])
        if decoder.lm_head is not None:
            decoder.lm_head.copy_(state["lm_head.weight"])
        for index, layer in enumerate(decoder.layers):
            prefix = f"model.layers.{index}."
            for projection in layer.projections:
                projection.unpack()
            _fuse_layer(layer, {name: state[prefix + name] for name in _split_layer(layer)})
            if decoder.packs_weights:
                for projection in layer.projections:
                    projection.pack()
        if decoder.packs_weights:
            decoder.pack_head()


def views_of_safetensors(data: bytearray) -> dict[str, Tensor]:
    """Tensors of a safetensors file from anybody, in the file's own memory.

    Raises:
        PeerFault: not a well-formed file of floating-point tensors.
    """
    dtypes = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    state: dict[str, Tensor] = {}
    for span in read_layout(data):
        if span.dtype not in dtypes:
            raise PeerFault(MALFORMED_RECORD, f"safetensors: {span.name[:80]!r} holds {span.dtype}, which no weight is")
        dtype = dtypes[span.dtype]
        flat = (
            torch.frombuffer(data, dtype=dtype, count=span.num_elements, offset=span.start)
            if span.num_elements
            else torch.empty(0, dtype=dtype)
        )
        state[span.name] = flat.reshape(span.shape)
    return state


def check_state(config: AnyConfig, state: Mapping[str, Tensor]) -> None:
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


def to_safetensors_bytes(state: Mapping[str, Tensor], dtype: torch.dtype = torch.bfloat16) -> bytes:
    """One safetensors file; the same state gives the same bytes. Tensors that share memory are written out each."""
    tensors: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name in state:
        tensor = state[name].detach().to(device="cpu", dtype=dtype).contiguous()
        storage = tensor.untyped_storage().data_ptr()
        tensors[name] = tensor.clone() if storage in storages else tensor
        storages.add(storage)
    data: bytes = safetensors.torch.save(tensors, metadata={"format": "pt"})
    return data


def from_safetensors_bytes(data: bytes, max_bytes: int) -> dict[str, Tensor]:
    """Tensors of a safetensors file from anybody.

    Raises:
        PeerFault: longer than `max_bytes`, or not a well-formed file of floating-point tensors.
    """
    if len(data) > max_bytes:
        raise PeerFault(MALFORMED_RECORD, f"safetensors of {len(data)} bytes, at most {max_bytes} allowed")
    num_header_bytes = int.from_bytes(data[:8], "little")
    if num_header_bytes > MAX_HEADER_BYTES:
        raise PeerFault(
            MALFORMED_RECORD, f"safetensors header of {num_header_bytes} bytes, at most {MAX_HEADER_BYTES} allowed"
        )
    try:
        state: dict[str, Tensor] = safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise PeerFault(MALFORMED_RECORD, f"safetensors: {error}") from error
    for name, tensor in state.items():
        if tensor.dtype not in _FLOAT_DTYPES:
            raise PeerFault(MALFORMED_RECORD, f"safetensors: {name[:80]!r} holds {tensor.dtype}, which no weight is")
    return state


_UNFUSED = {
    "input_layernorm.weight": "input_norm.weight",
    "self_attn.o_proj.weight": "o_proj.weight",
    "self_attn.o_proj.bias": "o_proj.bias",
    "post_attention_layernorm.weight": "mlp_norm.weight",
    "mlp.gate_proj.weight": "gate_proj.weight",
    "mlp.up_proj.weight": "up_proj.weight",
    "mlp.down_proj.weight": "down_proj.weight",
}
"""Tensors that differ in name only: Hugging Face -> ours."""
_UNFUSED_SANDWICH = _UNFUSED | {
    "post_attention_layernorm.weight": "attention_output_norm.weight",
    "pre_feedforward_layernorm.weight": "mlp_norm.weight",
    "post_feedforward_layernorm.weight": "mlp_output_norm.weight",
}
"""The same with norms on both sides: what others call post-attention is on attention's output there."""


def unfused(layer: DecoderLayer) -> Mapping[str, str]:
    """A layer's tensors that differ in name only: Hugging Face -> ours; not all of them need be there."""
    return _UNFUSED if layer.mlp_output_norm is None else _UNFUSED_SANDWICH


def _split_layer(layer: DecoderLayer) -> dict[str, Tensor]:
    """Our fused tensors -> Hugging Face's, without the layer's prefix."""
    ours = dict(layer.named_parameters())
    theirs: dict[str, Tensor] = {name: ours[own] for name, own in unfused(layer).items() if own in ours}
    for kind in ("weight", "bias"):
        if f"qkv_proj.{kind}" in ours:
            query, key, value = layer.split_heads(ours[f"qkv_proj.{kind}"].unflatten(0, (-1, layer.head_dim)), dim=0)
            theirs[f"self_attn.q_proj.{kind}"] = pairs_to_halves(query.flatten(0, 1), layer.head_dim)
            theirs[f"self_attn.k_proj.{kind}"] = pairs_to_halves(key.flatten(0, 1), layer.head_dim)
            theirs[f"self_attn.v_proj.{kind}"] = value.flatten(0, 1)
    for norm in ("q_norm", "k_norm"):
        if f"{norm}.weight" in ours:
            theirs[f"self_attn.{norm}.weight"] = pairs_to_halves(ours[f"{norm}.weight"], layer.head_dim)
    return theirs


def _fuse_layer(layer: DecoderLayer, theirs: Mapping[str, Tensor]) -> None:
    """The inverse of `_split_layer`, into the layer's own parameters."""
    fused = {own: theirs[name] for name, own in unfused(layer).items() if name in theirs}
    for kind in ("weight", "bias"):
        if f"self_attn.q_proj.{kind}" in theirs:
            query, key, value = (theirs[f"self_attn.{part}_proj.{kind}"] for part in "qkv")
            rotated = [pairs_to_neighbours(rows, layer.head_dim) for rows in (query, key)]
            fused[f"qkv_proj.{kind}"] = torch.cat((*rotated, value))
    for norm in ("q_norm", "k_norm"):
        if f"self_attn.{norm}.weight" in theirs:
            fused[f"{norm}.weight"] = pairs_to_neighbours(theirs[f"self_attn.{norm}.weight"], layer.head_dim)
    parameters = dict(layer.named_parameters())
    for name, tensor in fused.items():
        parameters[name].copy_(tensor)


def _is_tied_copy(config: AnyConfig, state: Mapping[str, Tensor], name: str) -> bool:
    embedding = state.get("model.embed_tokens.weight")
    return (
        config.tie_word_embeddings
        and name == "lm_head.weight"
        and embedding is not None
        and torch.equal(state[name], embedding)
    )


def _some(items: list[str], limit: int = 3) -> str:
    return ", ".join(items[:limit]) + (f" and {len(items) - limit} more" if len(items) > limit else "")
