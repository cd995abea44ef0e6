"""Patches of every type, shape and density, bit for bit; and of what a training library holds in memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from bit_files import bits_of, file_of
from farflung.model.weights import to_safetensors_bytes
from farflung.sharding.difference import compare
from farflung.sharding.file_layout import ITEM_BYTES
from farflung.sharding.patch_apply import apply_patch
from farflung.sharding.patch_build import build_patch
from farflung.wire.canonical import sha256_hex

SPECIAL = {
    "BF16": [0x7FC0, 0x7FC1, 0xFFFF, 0x0000, 0x8000, 0x7F80, 0xFF80, 0x0001, 0x8001],
    "F16": [0x7E00, 0x7E01, 0xFFFF, 0x0000, 0x8000, 0x7C00, 0xFC00, 0x0001, 0x8001],
    "F32": [0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 1, 0x80000001],
}
"""NaNs with payloads, both zeros, infinities, smallest subnormals."""


@dataclass(frozen=True)
class Drawn:
    """A tensor before and after."""

    dtype: str
    old: NDArray[Any]
    new: NDArray[Any]


@st.composite
def tensors(draw: st.DrawFn) -> Drawn:
    dtype = draw(st.sampled_from(sorted(ITEM_BYTES)))
    shape = draw(st.lists(st.integers(0, 9), max_size=4).map(tuple))
    density = draw(st.sampled_from([0.0, 0.001, 0.05, 0.5, 1.0]) | st.floats(0, 1))
    dice = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    kind = bits_of(dtype)
    top = int(np.iinfo(kind).max)
    old = dice.integers(0, top, shape, kind, endpoint=True)
    if draw(st.booleans()) and dtype in SPECIAL:
        old = dice.choice(np.array(SPECIAL[dtype], kind), shape)
        moved = dice.choice(np.array(SPECIAL[dtype], kind), shape)
    elif draw(st.booleans()):
        moved = dice.integers(0, top, shape, kind, endpoint=True)  # anywhere
    else:
        moved = np.bitwise_xor(old, dice.integers(1, min(top, 8), shape, kind))  # near
    new = np.where(dice.random(shape) < density, moved, old)
    return Drawn(dtype, np.asarray(old, kind).reshape(shape), np.asarray(new, kind).reshape(shape))


@settings(max_examples=150, deadline=None)
@given(st.lists(tensors(), min_size=1, max_size=5))
def test_every_type_shape_and_density_comes_out_bit_for_bit(drawn: list[Drawn]) -> None:
    dtypes = {str(number): each.dtype for number, each in enumerate(drawn)}
    base = file_of({str(number): each.old for number, each in enumerate(drawn)}, dtypes)
    result = file_of({str(number): each.new for number, each in enumerate(drawn)}, dtypes)
    patch = build_patch(base, result)
    assert patch is not None
    weights = bytearray(base)
    changes = apply_patch(weights, patch, base_sha256=sha256_hex(base))
    assert bytes(weights) == result
    for change in changes:
        each = drawn[int(change.span.name)]
        differing = np.flatnonzero(each.old.reshape(-1) != each.new.reshape(-1))
        assert change.indices is None or change.indices.tolist() == differing.tolist()
    assert compare([base], [result]).num_changed == sum(int((each.old != each.new).sum()) for each in drawn)


def shared(dice: torch.Generator) -> dict[str, Tensor]:
    embedding = torch.randn(40, 16, generator=dice)
    return {"embed": embedding, "head": embedding, "rows": embedding[3:9]}


def turned(dice: torch.Generator) -> dict[str, Tensor]:
    base = torch.randn(24, 10, 6, generator=dice)
    return {"transposed": base.transpose(0, 2), "strided": base[::3, 1::2], "expanded": base[:1, :1].expand(5, 7, 6)}


def odd(dice: torch.Generator) -> dict[str, Tensor]:
    return {"none": torch.zeros(0, 5), "inner": torch.zeros(3, 0), "scalar": torch.randn((), generator=dice)}


@pytest.mark.parametrize("make", [shared, turned, odd])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_tied_strided_and_empty_tensors_of_a_trainer_travel_by_value(
    make: Callable[[torch.Generator], dict[str, Tensor]], dtype: torch.dtype
) -> None:
    before = make(torch.Generator().manual_seed(0))
    after = make(torch.Generator().manual_seed(1))
    base, result = (bytes(to_safetensors_bytes(state, dtype)) for state in (before, after))
    patch = build_patch(base, result)
    assert patch is not None
    weights = bytearray(base)
    apply_patch(weights, patch, base_sha256=sha256_hex(base))
    assert bytes(weights) == result
