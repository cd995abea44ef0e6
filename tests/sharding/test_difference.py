"""Densities and information by hand-counted examples, and patches that stay near it."""

import numpy as np
import pytest
from safetensors.numpy import save

from farflung.errors import PeerFault
from farflung.sharding.difference import compare
from farflung.sharding.patch_build import build_patch


def file_of(**tensors: object) -> bytes:
    data: bytes = save({name: np.asarray(value) for name, value in tensors.items()})
    return data


def test_equal_files_have_nothing_to_say() -> None:
    data = file_of(a=np.arange(8, dtype=np.float32), none=np.zeros((0, 4), np.float16))
    difference = compare([data], [data])
    assert (difference.num_changed, difference.density, difference.information_bytes) == (0, 0.0, 0.0)
    assert [tensor.density for tensor in difference.tensors] == [0.0, 0.0]


def test_information_is_that_of_positions_and_moves() -> None:
    old = np.zeros(16, np.uint16)
    new = old.copy()
    new[[1, 5, 9, 13]] = [1, 1, 2, 2]
    difference = compare([file_of(w=old)], [file_of(w=new)])
    # 16 * H(1/4) bits of positions, and one bit for each of four moves that are +1 or +2 equally often
    positions_bits = 16 * (0.25 * 2 + 0.75 * np.log2(4 / 3))
    assert difference.information_bytes == pytest.approx((positions_bits + 4) / 8)
    assert (difference.num_changed, difference.tensors[0].density) == (4, 0.25)


def test_large_moves_of_wide_elements_count_their_low_bits_and_of_the_widest_the_values() -> None:
    old, new = np.zeros(4, np.uint32), np.full(4, 1 << 20, np.uint32)
    assert compare([file_of(w=old)], [file_of(w=new)]).information_bytes == pytest.approx(4 * 20 / 8)
    old64, new64 = np.zeros(4, np.uint64), np.full(4, 5, np.uint64)
    assert compare([file_of(w=old64)], [file_of(w=new64)]).information_bytes == pytest.approx(4 * 8)


def test_bits_are_compared_and_not_numbers() -> None:
    old = np.array([0.0, np.nan, 1.0], np.float32)
    new = np.array([-0.0, np.nan, 1.0], np.float32)
    assert compare([file_of(w=old)], [file_of(w=new)]).num_changed == 1


def test_tensors_may_lie_in_other_files_and_order() -> None:
    a, b = np.arange(6, dtype=np.float32), np.ones(3, np.float16)
    difference = compare([file_of(a=a, b=b)], [file_of(b=b), file_of(a=a + 1)])
    assert {tensor.name: tensor.num_changed for tensor in difference.tensors} == {"a": 6, "b": 0}
    assert (difference.only_old, difference.only_new, difference.recast) == ([], [], {})


@pytest.mark.parametrize("density", [0.001, 0.01, 0.1, 0.6])
def test_a_patch_is_within_a_tenth_of_the_information(density: float) -> None:
    dice = np.random.default_rng(0)
    old = dice.integers(0, 1 << 14, 200_000, dtype=np.uint16)
    new = np.where(dice.random(len(old)) < density, old + dice.choice([1, 2], len(old)), old).astype(np.uint16)
    before, after = file_of(w=old), file_of(w=new)
    patch = build_patch(before, after)
    assert patch is not None
    information = compare([before], [after]).information_bytes
    assert information <= len(patch) <= 1.1 * information + 300


def test_what_is_no_weights_file_is_refused() -> None:
    with pytest.raises(PeerFault, match="safetensors"):
        compare([b"\xff" * 50], [file_of(a=np.zeros(1))])
