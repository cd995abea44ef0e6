"""A decoder with an adapter: attached once, then its numbers are written, read and differentiated.

The decoder fuses q, k and v, so their adapters are fused too: ranks side by side in A, blocks in B.

    A = [A_q; A_k; A_v]      B = [B_q  0    0  ]
                                 [0    B_k  0  ]
                                 [0    0    B_v]

What lies outside of the blocks stays zero; gradients there are not looked at. This module alone translates.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from farflung.errors import UserError
from farflung.model.adapter_files import Adapter
from farflung.model.build import AnyDecoder
from farflung.model.decoder import Decoder, DecoderLayer, Projection
from farflung.model.lora import A, B, LoraSpec, check_adapter
from farflung.model.low_rank import LowRank
from farflung.model.rope import pairs_to_halves, pairs_to_neighbours


@dataclass(frozen=True, slots=True)
class _Block:
    """Where the adapter of one projection by its Hugging Face name lies."""

    module: str
    matrices: LowRank
    rows: slice
    """Of B: its outputs."""
    ranks: slice
    """Of A's rows and B's columns."""
    head_dim: int | None
    """Its rows are in the order of rotary pairs."""


def attach(decoder: Decoder, spec: LoraSpec, *, requires_grad: bool = False) -> None:
    """Give every target an adapter that changes nothing. The decoder's own weights get no gradient any more."""
    decoder.requires_grad_(requires_grad=False)
    for layer in decoder.layers:
        for projection, parts in _parts(layer):
            num_targets = sum(target in spec.targets for target, _ in parts)
            if num_targets:
                num_out, num_in = projection.weight.shape
                matrices = LowRank(
                    num_in, num_out, num_targets * spec.rank, spec.scale, like=projection.weight.detach()
                )
                projection.adapter = matrices.requires_grad_(requires_grad)


def detach(decoder: AnyDecoder) -> None:
    """Take all adapters away."""
    if not isinstance(decoder, Decoder):
        return
    for layer in decoder.layers:
        for projection, _ in _parts(layer):
            projection.adapter = None


def put_adapter(decoder: AnyDecoder, adapter: Adapter) -> None:
    """Compute with this adapter, without gradients; one that was there before goes.

    Raises:
        UserError: it does not fit, and what was there stays; or the decoder is not our own.
    """
    if not isinstance(decoder, Decoder):
        raise UserError("this model is run by transformers, where adapters are not applied: merge it with peft first")
    check_adapter(decoder.config, adapter.spec, adapter.state)
    detach(decoder)
    attach(decoder, adapter.spec)
    load_adapter(decoder, adapter.state, adapter.spec)


def set_merged(decoder: Decoder, *, is_merged: bool) -> None:
    """Whether the decoder's own weights hold the adapter's product."""
    for module in decoder.modules():
        if isinstance(module, LowRank):
            module.is_merged = is_merged


@torch.no_grad()
def load_adapter(decoder: Decoder, adapter: Mapping[str, Tensor], spec: LoraSpec) -> None:
    """Write an adapter's numbers, in the decoder's precision.

    Raises:
        UserError: it does not fit; nothing is changed then.
    """
    check_adapter(decoder.config, spec, adapter)
    for block in _blocks(decoder, spec):
        rows_b = adapter[block.module + B]
        if block.head_dim is not None:
            rows_b = pairs_to_neighbours(rows_b, block.head_dim)
        block.matrices.a_RI[block.ranks].copy_(adapter[block.module + A])
        block.matrices.b_OR[block.rows, block.ranks].copy_(rows_b)


def take_gradient(decoder: Decoder, spec: LoraSpec) -> dict[str, Tensor]:
    """float32 gradient of the adapter by name, which is gone from the decoder then. Empty without a backward pass."""
    gradient: dict[str, Tensor] = {}
    for block in _blocks(decoder, spec):
        grad_a, grad_b = block.matrices.a_RI.grad, block.matrices.b_OR.grad
        if grad_a is None or grad_b is None:
            continue
        rows_b = grad_b[block.rows, block.ranks]
        if block.head_dim is not None:
            rows_b = pairs_to_halves(rows_b, block.head_dim)
        gradient |= {block.module + A: grad_a[block.ranks].float(), block.module + B: rows_b.float()}
    for module in decoder.modules():
        if isinstance(module, LowRank):
            module.zero_grad(set_to_none=True)
    return gradient


def _parts(layer: DecoderLayer) -> list[tuple[Projection, list[tuple[str, int]]]]:
    """Each projection with the Hugging Face ones in it: (name, outputs)."""
    num_query, num_kv = layer.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
    return [
        (layer.qkv_proj, [("q_proj", num_query), ("k_proj", num_kv), ("v_proj", num_kv)]),
        *((getattr(layer, name), [(name, 0)]) for name in ("o_proj", "gate_proj", "up_proj", "down_proj")),
    ]


def _blocks(decoder: Decoder, spec: LoraSpec) -> Iterator[_Block]:
    for index, layer in enumerate(decoder.layers):
        for projection, parts in _parts(layer):
            row = rank = 0
            for target, num_out in parts:
                rows = slice(row, row + num_out) if num_out else slice(None)
                row += num_out
                if target not in spec.targets:
                    continue
                assert projection.adapter is not None, "attach comes first"
                parent = "self_attn" if target in ("q_proj", "k_proj", "v_proj", "o_proj") else "mlp"
                yield _Block(
                    module=f"model.layers.{index}.{parent}.{target}",
                    matrices=projection.adapter,
                    rows=rows,
                    ranks=slice(rank, rank + spec.rank),
                    head_dim=layer.head_dim if target in ("q_proj", "k_proj") else None,
                )
                rank += spec.rank
