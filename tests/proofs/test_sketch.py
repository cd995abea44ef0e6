"""Commitments to states: the same computation agrees exactly, everything else is far, malformed bytes are refused."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from farflung.proofs import sketch
from farflung.proofs.shape import num_chunks, proof_bytes, shape_problem
from farflung.slots import noise
from farflung.wire.proof import CHUNK_TOKENS

SEED, OTHER_SEED = bytes(range(32)), bytes(range(1, 33))


def states(num_tokens: int, width: int = 96, seed: int = 0) -> Tensor:
    return torch.randn(num_tokens, width, generator=torch.Generator().manual_seed(seed)) * 3 + 0.5


def own(hidden_TD: Tensor, draw_seed: bytes = SEED, group: int = 2, sample: int = 5) -> Tensor:
    keys = sketch.chunk_keys(draw_seed, group, sample, num_chunks(len(hidden_TD)))
    return sketch.sketch(hidden_TD, torch.from_numpy(keys))


@pytest.mark.parametrize("num_tokens", [1, 31, 32, 33, 64, 100])
def test_what_is_built_is_at_no_distance_from_itself(num_tokens: int) -> None:
    hidden = states(num_tokens)
    proof = sketch.build(hidden, SEED, 2, 5)
    assert len(proof) == proof_bytes("sketch", num_tokens) == 8 * num_tokens
    distances = sketch.distances(proof, own(hidden))
    assert distances.shape == (num_chunks(num_tokens),)
    assert not distances.any()


def test_a_row_commits_alike_whatever_stands_beside_it() -> None:
    hidden = states(70)
    alone = torch.cat([own(hidden[:40])[:32], own(hidden)[32:]])
    assert torch.equal(alone, own(hidden))


@pytest.mark.parametrize(
    ("draw_seed", "group", "sample"), [(OTHER_SEED, 2, 5), (SEED, 3, 5), (SEED, 2, 4), (SEED, 5, 2)]
)
def test_another_slot_group_or_sample_has_other_signs(draw_seed: bytes, group: int, sample: int) -> None:
    hidden = states(64)
    distances = sketch.distances(sketch.build(hidden, draw_seed, group, sample), own(hidden))
    assert (distances > 1).all()


def test_w14_chunks_cannot_change_places() -> None:
    hidden = states(64)
    proof = sketch.build(hidden, SEED, 2, 5)
    half = len(proof) // 2
    assert (sketch.distances(proof[half:] + proof[:half], own(hidden)) > 1).all()


@pytest.mark.parametrize(
    "other",
    [
        lambda hidden: states(64, seed=1),
        lambda hidden: torch.ones_like(hidden),
        lambda hidden: hidden.flip(0),
        lambda hidden: -hidden,
    ],
    ids=["other states", "a constant", "another order", "another sign"],
)
def test_w1_w16_other_states_are_far(other: object) -> None:
    assert callable(other)
    hidden = states(64)
    assert (sketch.distances(sketch.build(other(hidden), SEED, 2, 5), own(hidden)) > 0.7).all()


@pytest.mark.parametrize("forged", [b"\0" * 512, b"\x7f" * 512, bytes(range(256)) * 2])
def test_w16_bytes_that_were_not_computed_are_far(forged: bytes) -> None:
    assert (sketch.distances(forged, own(states(64))) > 0.7).all()


def test_noise_is_measured_in_its_own_size() -> None:
    """Half a step of rounding aside, the distance is the relative error of the states."""
    hidden = states(320, width=256)
    for size in (0.01, 0.05, 0.2):
        noisy = hidden + size * hidden.norm(dim=-1, keepdim=True) / 16 * torch.randn(320, 256)
        distance = float(np.sqrt(np.mean(sketch.distances(sketch.build(noisy, SEED, 2, 5), own(hidden)) ** 2)))
        assert distance == pytest.approx(np.hypot(size, 0.0128), rel=0.25)


def test_the_size_of_a_row_is_no_part_of_it() -> None:
    hidden = states(40)
    assert torch.equal(own(hidden), own(hidden * 1000.0))
    assert torch.equal(own(hidden), own(hidden / 1024))


@pytest.mark.parametrize("bad", [0.0, float("nan"), float("inf")])
def test_rows_without_a_direction_commit_to_zeros(bad: float) -> None:
    hidden = states(33)
    hidden[7] = bad
    made = own(hidden)
    assert not made[7].any()
    assert made[8].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_any_float_type_will_do(dtype: torch.dtype) -> None:
    hidden = states(32).to(torch.bfloat16)
    assert torch.equal(own(hidden.to(dtype)), own(hidden))


def test_signs_are_the_bits_of_the_counter_based_words() -> None:
    keys = sketch.chunk_keys(SEED, 0, 0, 3)
    words = noise.noise_bits(keys, 50)
    expected = 1 - 2 * ((words[:, :, None] >> np.arange(8)) & 1)
    assert np.array_equal(sketch.signs(torch.from_numpy(keys), 50).numpy(), expected)


def test_signs_are_balanced_and_projections_independent() -> None:
    keys = torch.from_numpy(sketch.chunk_keys(SEED, 0, 0, 200))
    drawn = sketch.signs(keys, 128).reshape(-1, 8)
    assert drawn.mean().abs() < 0.01
    correlation = (drawn.T @ drawn / len(drawn)) - torch.eye(8)
    assert correlation.abs().max() < 0.03


@pytest.mark.parametrize("num_threads", [1, 2])
def test_threads_change_nothing(num_threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        made = sketch.build(states(200), SEED, 0, 0)
    finally:
        torch.set_num_threads(before)
    assert made == sketch.build(states(200), SEED, 0, 0)


@given(st.binary(max_size=600), st.integers(1, 64))
def test_bytes_of_another_length_are_refused_before_anything_is_computed(data: bytes, num_tokens: int) -> None:
    problem = shape_problem("sketch", data, num_tokens)
    assert (problem is None) == (len(data) == 8 * num_tokens)
    if problem is not None:
        with pytest.raises(ValueError, match="which take"):
            sketch.distances(data, torch.zeros(num_tokens, 8, dtype=torch.int8))


@given(st.integers(0, 511), st.integers(1, 255))
def test_one_changed_byte_is_seen_in_its_chunk_alone(position: int, change: int) -> None:
    hidden = states(64)
    proof = bytearray(sketch.build(hidden, SEED, 2, 5))
    proof[position] = (proof[position] + change) % 256
    distances = sketch.distances(bytes(proof), own(hidden))
    assert [distance > 0 for distance in distances.tolist()] == [position < 256, position >= 256]
    assert CHUNK_TOKENS * 8 == 256
