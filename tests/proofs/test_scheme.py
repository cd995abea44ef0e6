"""Both schemes through one interface: what was built agrees, whatever else differs is told or refused."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from farflung.proofs.scheme import Comparison, build, compare
from farflung.proofs.shape import num_chunks, proof_bytes, shape_problem
from farflung.wire.proof import Scheme

SEED = bytes(range(32))
SCHEMES: tuple[Scheme, ...] = ("sketch", "toploc")


def states(num_tokens: int, width: int = 48, seed: int = 0) -> Tensor:
    return torch.randn(num_tokens, width, generator=torch.Generator().manual_seed(seed))


def compared(scheme: Scheme, proof: bytes, hidden_TD: Tensor) -> Comparison:
    return compare(scheme, proof, hidden_TD, SEED, 1, 2)


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=25, deadline=None)
@given(num_tokens=st.integers(1, 100), width=st.integers(1, 70), seed=st.integers(0, 1000))
def test_what_was_built_agrees_chunk_by_chunk(scheme: Scheme, num_tokens: int, width: int, seed: int) -> None:
    hidden = states(num_tokens, width, seed)
    proof = build(scheme, hidden, SEED, 1, 2)
    assert len(proof) == proof_bytes(scheme, num_tokens)
    assert shape_problem(scheme, proof, num_tokens) is None
    found = compared(scheme, proof, hidden)
    assert found.distances == (0.0,) * num_chunks(num_tokens)
    assert len(found.forgeries) == num_chunks(num_tokens)


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=60, deadline=None)
@given(position=st.integers(0, 511), change=st.integers(1, 255))
def test_any_changed_byte_is_refused_or_seen_in_its_chunk(scheme: Scheme, position: int, change: int) -> None:
    hidden = states(64)
    proof = bytearray(build(scheme, hidden, SEED, 1, 2))
    proof[position] = (proof[position] + change) % 256
    if shape_problem(scheme, bytes(proof), 64) is not None:
        return
    if scheme == "toploc" and position % 258 < 2:  # indices of 48 columns are the same with any modulus
        return
    found = compared(scheme, bytes(proof), hidden).distances
    size = len(proof) // 2
    assert [distance > 0 for distance in found] == [position < size, position >= size]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_rows_in_another_order_are_far(scheme: Scheme) -> None:
    hidden = states(64)
    order = torch.from_numpy(np.random.default_rng(0).permutation(64))
    found = compared(scheme, build(scheme, hidden[order], SEED, 1, 2), hidden)
    assert min(found.distances) > 0.7


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_row_more_or_less_is_refused_or_far(scheme: Scheme) -> None:
    hidden = states(65)
    for proven in (hidden[:-1], hidden[1:]):
        proof = build(scheme, proven, SEED, 1, 2)
        assert shape_problem(scheme, proof, 65) is not None
    shifted = build(scheme, hidden[1:], SEED, 1, 2)
    assert min(compared(scheme, shifted, hidden[:-1]).distances) > 0.7


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_least_forgery_is_what_a_forger_gets(scheme: Scheme) -> None:
    hidden = states(32, 300)
    expected = compared(scheme, build(scheme, hidden, SEED, 1, 2), hidden).forgeries
    assert expected[0] > 0.5
    if scheme == "sketch":
        assert compared(scheme, bytes(256), hidden).distances == expected


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("num_threads", [2, 3])
def test_threads_change_nothing(scheme: Scheme, num_threads: int) -> None:
    hidden = states(200, 600)
    alone = build(scheme, hidden, SEED, 1, 2)
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        assert build(scheme, hidden, SEED, 1, 2) == alone
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.binary(max_size=900), num_tokens=st.integers(1, 100))
def test_no_bytes_reach_arithmetic_unless_they_have_the_shape(scheme: Scheme, data: bytes, num_tokens: int) -> None:
    problem = shape_problem(scheme, data, num_tokens)
    if problem is not None:
        with pytest.raises(ValueError, match=r"which take|modulus|coefficient"):
            compared(scheme, data, states(num_tokens, 4))
