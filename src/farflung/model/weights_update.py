"""Loading the next version of weights into a decoder that holds the one before: what changed, where it lies.

    Hugging Face's tensor, position  ->  our parameter, position       rows of q and k in the order of rotary pairs,
                                                                       behind one another in the fused matrix

A projection that was packed (`model.packed`) has no elements that can be written: it is loaded whole if anything of it
changed, and so is a packed LM head. Does not know patches or files.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.model.build import AnyDecoder
from farflung.model.decoder import Decoder, DecoderLayer, Projection
from farflung.model.foreign.decoder import ForeignDecoder
from farflung.model.rope import pairs_to_neighbours
from farflung.model.weights import check_state, unfused

Changed = Mapping[str, NDArray[np.int64] | None]
"""Tensor name -> flat positions of changed elements, ascending; None = all of them. Others are as they were."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one of Hugging Face's tensors lies in one of our parameters."""

    parameter: str
    first_row: int = 0
    head_dim: int | None = None
    """Its rows are in the order of rotary pairs."""


@torch.no_grad()
def update_hf_state(decoder: AnyDecoder, state: Mapping[str, Tensor], changed: Changed) -> None:
    """Make the decoder hold `state`, of which it holds everything but what `changed` names.

    Args:
        state: whole tensors of the new weights, under Hugging Face names.

    Raises:
        UserError: tensors missing, unexpected or of another shape; nothing is changed then.
    """
    check_state(decoder.config, state)
    if isinstance(decoder, ForeignDecoder):
        for name, tensor in decoder.tensors.items():
            if name in changed:
                _write(tensor, _Place(name), state[name], changed[name])
        return
    for name, parameter in _outside_layers(decoder).items():
        if name in changed:
            _write(parameter, _Place(name), state[name], changed[name])
    for index, layer in enumerate(decoder.layers):
        _update_layer(layer, f"model.layers.{index}.", state, changed)
    if decoder.packs_weights and ("lm_head.weight" in changed or "model.embed_tokens.weight" in changed):
        decoder.pack_head()


def _outside_layers(decoder: Decoder) -> dict[str, Tensor]:
    head = {} if decoder.lm_head is None else {"lm_head.weight": decoder.lm_head}
    return {"model.embed_tokens.weight": decoder.embed_tokens, "model.norm.weight": decoder.norm.weight, **head}


def _update_layer(layer: DecoderLayer, prefix: str, state: Mapping[str, Tensor], changed: Changed) -> None:
    places = _places(layer)
    touched = {place.parameter for name, place in places.items() if prefix + name in changed}
    repacked = {
        f"{name}.weight": module
        for name, module in layer.named_modules()
        if isinstance(module, Projection) and module.is_packed and f"{name}.weight" in touched
    }
    for projection in repacked.values():
        projection.unpack()
    parameters = dict(layer.named_parameters())
    for name, place in places.items():
        parameter = parameters[place.parameter]
        if place.parameter in repacked:
            _write(parameter, place, state[prefix + name], None)
        elif prefix + name in changed:
            _write(parameter, place, state[prefix + name], changed[prefix + name])
    for projection in repacked.values():
        projection.pack()


def _places(layer: DecoderLayer) -> dict[str, _Place]:
    """Of every tensor of a layer, without the layer's prefix."""
    own = {name for name, _ in layer.named_parameters()}
    places = {name: _Place(ours) for name, ours in unfused(layer).items() if ours in own}
    num_query, num_kv = layer.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
    for kind in ("weight", "bias"):
        if f"qkv_proj.{kind}" in own:
            places[f"self_attn.q_proj.{kind}"] = _Place(f"qkv_proj.{kind}", 0, layer.head_dim)
            places[f"self_attn.k_proj.{kind}"] = _Place(f"qkv_proj.{kind}", num_query, layer.head_dim)
            places[f"self_attn.v_proj.{kind}"] = _Place(f"qkv_proj.{kind}", num_query + num_kv)
    for norm in ("q_norm", "k_norm"):
        if f"{norm}.weight" in own:
            places[f"self_attn.{norm}.weight"] = _Place(f"{norm}.weight", 0, layer.head_dim)
    return places


def _write(parameter: Tensor, place: _Place, values: Tensor, positions: NDArray[np.int64] | None) -> None:
    if positions is None:
        ordered = values if place.head_dim is None else pairs_to_neighbours(values, place.head_dim)
        parameter[place.first_row : place.first_row + len(values)].copy_(ordered)
        return
    chosen = values.reshape(-1)[torch.from_numpy(positions)]
    row_length = values.shape[1:].numel()
    own = torch.from_numpy(_own_positions(positions, row_length, place))
    parameter.view(-1)[own.to(parameter.device)] = chosen.to(parameter)


def _own_positions(positions: NDArray[np.int64], row_length: int, place: _Place) -> NDArray[np.int64]:
    """In our parameter, of those in Hugging Face's tensor (see `rope.pairs_to_neighbours`)."""
    offset = place.first_row * row_length
    if place.head_dim is None:
        return positions + offset if offset else positions
    rows, columns = np.divmod(positions, row_length)
    heads, inside = np.divmod(rows, place.head_dim)
    halves, pairs = np.divmod(inside, place.head_dim // 2)
    own_rows: NDArray[np.int64] = heads * place.head_dim + 2 * pairs + halves
    return own_rows * row_length + columns + offset
