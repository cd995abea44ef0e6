"""Patches between weights files: bit for bit, near the information bound, and never trusted."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bit_files import file_of
from farflung.errors import PeerFault
from farflung.sharding.patch_apply import apply_patch
from farflung.sharding.patch_build import build_patch
from farflung.sharding.patch_format import MAGIC
from farflung.wire.canonical import sha256_hex

NUMPY = {"BF16": np.uint16, "F16": np.uint16, "F32": np.uint32, "U8": np.uint8, "F64": np.uint64}
TENSORS = {
    "a": ("BF16", (40, 25)),
    "b": ("F32", (300,)),
    "none": ("BF16", (0, 7)),
    "one": ("BF16", ()),
    "c": ("F64", (9,)),
}

Arrays = dict[str, NDArray[Any]]


def random_arrays(seed: int) -> tuple[Arrays, dict[str, str]]:
    generator = np.random.default_rng(seed)
    arrays: Arrays = {}
    for name, (dtype, shape) in TENSORS.items():
        kind = NUMPY[dtype]
        arrays[name] = generator.integers(0, np.iinfo(kind).max, shape, kind, endpoint=True).reshape(shape)
    return arrays, {name: dtype for name, (dtype, _) in TENSORS.items()}


def changed(arrays: Arrays, seed: int, density: float, spread: int) -> Arrays:
    """Each element moved with the given probability, by up to `spread` in the order of bits (all bits if 0)."""
    generator = np.random.default_rng(seed)
    result = {}
    for name, array in arrays.items():
        top = np.iinfo(array.dtype).max
        step = generator.integers(1, min(spread, top) + 1 if spread else top, array.shape, array.dtype)
        is_moved = generator.random(array.shape) < density
        with np.errstate(over="ignore"):
            result[name] = (
                np.where(is_moved, np.bitwise_xor(array, step), array).astype(array.dtype).reshape(array.shape)
            )
    return result


def applied(base: bytes, patch: bytes) -> bytes:
    weights = bytearray(base)
    apply_patch(weights, patch, base_sha256=sha256_hex(base))
    return bytes(weights)


def pair(density: float = 0.1, spread: int = 3, seed: int = 0) -> tuple[bytes, bytes]:
    arrays, dtypes = random_arrays(seed)
    return file_of(arrays, dtypes), file_of(changed(arrays, seed + 1, density, spread), dtypes)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1 << 20), st.sampled_from([0.0, 0.001, 0.02, 0.3, 0.9, 1.0]), st.sampled_from([1, 3, 300, 0]))
def test_a_patch_gives_the_result_bit_for_bit(seed: int, density: float, spread: int) -> None:
    base, result = pair(density, spread, seed)
    patch = build_patch(base, result)
    assert patch is not None
    assert applied(base, patch) == result
    assert len(patch) < 1.01 * len(result) + 600  # header and tables of a tiny file


def test_nan_payloads_signed_zeros_and_infinities_survive() -> None:
    special = np.array([0x7FC0, 0x7FC1, 0xFFFF, 0x0000, 0x8000, 0x7F80, 0xFF80, 0x0001, 0x8001, 0x7FFF] * 30, np.uint16)
    base = file_of({"a": special}, {"a": "BF16"})
    result = file_of({"a": np.roll(special, 1)}, {"a": "BF16"})
    patch = build_patch(base, result)
    assert patch is not None
    assert applied(base, patch) == result


def test_changes_name_exactly_the_elements_that_changed() -> None:
    arrays, dtypes = random_arrays(3)
    after = {name: array.copy() for name, array in arrays.items()}
    after["a"][3, 4] ^= 1
    after["a"][39, 24] ^= 1
    base, result = file_of(arrays, dtypes), file_of(after, dtypes)
    patch = build_patch(base, result)
    assert patch is not None
    (change,) = apply_patch(bytearray(base), patch, base_sha256=sha256_hex(base))
    assert change.span.name == "a"
    assert change.indices is not None
    assert change.indices.tolist() == [3 * 25 + 4, 39 * 25 + 24]


def test_fifty_random_steps_in_a_chain_equal_the_snapshot() -> None:
    arrays, dtypes = random_arrays(5)
    file = held = file_of(arrays, dtypes)
    for step in range(50):
        arrays = changed(arrays, step, density=0.05 * (step % 4), spread=5)
        after = file_of(arrays, dtypes)
        patch = build_patch(file, after)
        assert patch is not None
        held = applied(held, patch)
        file = after
    assert held == file


def test_a_small_step_of_bf16_weights_costs_little_more_than_its_information() -> None:
    """A learning rate of about a hundredth of the weights' last place: few elements move, each by one place."""
    generator = np.random.default_rng(0)
    old = (generator.normal(0, 0.05, 400_000).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    is_moved = generator.random(len(old)) < 0.02
    new = np.where(is_moved, old + generator.choice([1, -1], len(old)), old).astype(np.uint16)
    base, result = file_of({"w": old}, {"w": "BF16"}), file_of({"w": new}, {"w": "BF16"})
    patch = build_patch(base, result)
    assert patch is not None
    share = float(np.mean(old != new))
    positions = -share * np.log2(share) - (1 - share) * np.log2(1 - share)
    bound_bytes = len(old) * (positions + share) / 8
    assert len(patch) < 1.1 * bound_bytes
    assert len(patch) < len(result) / 60


@pytest.mark.parametrize("other", [{"a": "F16"}, {"b": "BF16"}])
def test_other_tensors_cannot_be_patched(other: dict[str, str]) -> None:
    array = np.arange(8, dtype=np.uint16)
    base = file_of({"a": array}, {"a": "BF16"})
    (name,) = other
    assert build_patch(base, file_of({name: array}, other)) is None
    assert build_patch(base, file_of({"a": array[:6]}, {"a": "BF16"})) is None
    assert build_patch(base, file_of({"a": array.reshape(2, 4)}, {"a": "BF16"})) is None


def test_a_patch_of_another_base_is_refused() -> None:
    base, result = pair()
    patch = build_patch(base, result)
    assert patch is not None
    with pytest.raises(PeerFault, match="for the base"):
        apply_patch(bytearray(result), patch, base_sha256=sha256_hex(result))


def test_any_flipped_bit_is_refused() -> None:
    base, result = pair(0.2, 30)
    patch = build_patch(base, result)
    assert patch is not None
    digest = sha256_hex(base)
    for place in range(len(patch)):
        broken = bytearray(patch)
        broken[place] ^= 1 << place % 8
        weights = bytearray(base)
        try:
            apply_patch(weights, bytes(broken), base_sha256=digest)
        except PeerFault:
            continue
        assert bytes(weights) == result, f"byte {place} changed what came out"


@pytest.mark.parametrize("cut", [0, 5, len(MAGIC), len(MAGIC) + 3, 40, -1, -60])
def test_a_patch_that_is_cut_short_is_refused(cut: int) -> None:
    base, result = pair()
    patch = build_patch(base, result)
    assert patch is not None
    with pytest.raises(PeerFault, match="patch"):
        apply_patch(bytearray(base), patch[:cut], base_sha256=sha256_hex(base))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_noise_is_refused(noise: bytes) -> None:
    base, _ = pair()
    with pytest.raises(PeerFault):
        apply_patch(bytearray(base), MAGIC + noise, base_sha256=sha256_hex(base))
