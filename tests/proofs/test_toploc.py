"""The published commitment format: its bytes, its arithmetic against plain integers, and all that it must refuse."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.toploc_vectors import vector_noise, vector_states
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from farflung.proofs import toploc
from farflung.proofs.shape import shape_problem
from farflung.proofs.toploc import PRIME, TOP_VALUES, build, check, check_and_forge, decode

VECTORS = Path(__file__).with_name("toploc_vectors.json")
"""Of toploc 0.1.6, by `benchmarks/toploc_vectors.py`."""


def states(num_tokens: int, width: int = 64, seed: int = 0) -> Tensor:
    return torch.randn(num_tokens, width, generator=torch.Generator().manual_seed(seed))


def forged(hidden: Tensor) -> list[toploc.ChunkFigures]:
    return check_and_forge(build(hidden), hidden)[1]


def plain_value(coefficients: list[int], point: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % PRIME
    return value


def test_the_published_example_decodes_to_its_coefficients() -> None:
    """`ffd9 1b42 2b67 ba4b 756d` of the reference's documentation, which keeps four values."""
    words = np.frombuffer(bytes.fromhex("ffd91b422b67ba4b756d"), dtype=">u2")
    padded = np.concatenate([words, np.zeros(TOP_VALUES - 4, dtype=">u2")]).astype(">u2").tobytes()
    moduli, coefficients = decode(padded, 32)
    assert moduli.tolist() == [65497]
    assert coefficients[0, :4].tolist() == [6978, 11111, 47691, 30061]


@pytest.mark.parametrize(("num_tokens", "num_chunks"), [(1, 1), (31, 1), (32, 1), (33, 2), (96, 3), (100, 4)])
def test_what_is_built_is_258_bytes_a_chunk_and_agrees_with_itself(num_tokens: int, num_chunks: int) -> None:
    hidden = states(num_tokens)
    proof = build(hidden)
    assert len(proof) == 258 * num_chunks
    figures = check(proof, hidden)
    assert len(figures) == num_chunks
    assert all((each.exponent_mismatches, each.mean_mantissa) == (0, 0.0) and each.passes for each in figures)


def test_the_polynomial_goes_through_the_largest_values_bit_for_bit() -> None:
    """Against integers of Python, not the arithmetic under test."""
    hidden = states(32)
    flat = hidden.to(torch.bfloat16).flatten()
    words = np.frombuffer(build(hidden), dtype=">u2").astype(int).tolist()
    modulus, coefficients = words[0], words[1:]
    assert modulus == PRIME
    for index in flat.abs().topk(TOP_VALUES).indices.tolist():
        bits = int(flat[index].view(torch.int16)) & 0xFFFF
        assert plain_value(coefficients, index % modulus) == bits


@settings(max_examples=30)
@given(st.integers(1, 128), st.integers(0, 2**32))
def test_interpolation_and_evaluation_are_exact(count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    points = np.stack([generator.choice(PRIME, count, replace=False) for _ in range(3)]).astype(np.float64)
    values = generator.integers(0, PRIME, (3, count)).astype(np.float64)
    coefficients = toploc._interpolate(points, values)
    assert ((coefficients >= 0) & (coefficients < PRIME) & (coefficients == np.floor(coefficients))).all()
    assert np.array_equal(toploc._evaluate(points, coefficients), values)
    first = coefficients[0].astype(int).tolist()
    assert all(plain_value(first, int(x)) == int(y) for x, y in zip(points[0], values[0], strict=True))


@pytest.mark.parametrize("vector", json.loads(VECTORS.read_text()), ids=lambda vector: str(vector["name"]))
def test_bytes_and_figures_are_those_of_the_library(vector: dict[str, Any]) -> None:
    """Both directions: it builds these bytes and we do; from ours, beside other states, it tells these figures."""
    states = vector_states(vector["rows"], vector["width"], vector["name"])
    proof = build(states)
    assert proof.hex() == vector["proof"]
    found = check(proof, vector_noise(states))
    figures = [[each.exponent_mismatches, each.mean_mantissa, each.median_mantissa] for each in found]
    assert figures == vector["figures"]


def test_chunks_side_by_side_are_those_of_each_alone() -> None:
    hidden = states(160)
    assert build(hidden) == b"".join(build(part) for part in hidden.split(32))


def test_where_indices_exceed_the_field_a_smaller_modulus_keeps_them_apart() -> None:
    """32 rows of width 5120 have 163,840 indices."""
    hidden = states(32 * 60, 5120)
    proof = build(hidden)
    moduli = {int.from_bytes(proof[start : start + 2], "big") for start in range(0, len(proof), 258)}
    assert len(moduli) > 1
    assert all(2**15 < modulus <= PRIME for modulus in moduli)
    assert all(each.passes and each.exponent_mismatches == 0 for each in check(proof, hidden))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_chunk_of_fewer_values_has_a_polynomial_of_lower_degree(width: int) -> None:
    hidden = states(20, width)
    words = np.frombuffer(build(hidden), dtype=">u2")
    assert not words[1 + 20 * width :].any()
    assert check(build(hidden), hidden)[0].exponent_mismatches == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_states_that_are_not_finite_are_refused(bad: float) -> None:
    hidden = states(32)
    hidden[3, 5] = bad
    with pytest.raises(ValueError, match="not finite"):
        build(hidden)
    with pytest.raises(ValueError, match="not finite"):
        check(build(states(32)), hidden)


@pytest.mark.parametrize(
    ("forged", "words"),
    [
        (b"", "0 bytes for 32 tokens"),
        (bytes(258), "modulus 0"),
        (b"\xff\xd9", "2 bytes"),
        (b"\x00\x01" + bytes(256), "modulus 1"),
        (b"\x80\x00" + bytes(256), "modulus 32768"),
        (b"\xff\xff" + bytes(256), "modulus 65535"),
        (b"\xff\xd9" + b"\xff\xd9" * 128, "a coefficient of 65497"),
        (bytes(257), "257 bytes"),
        (bytes(516), "516 bytes"),
    ],
)
def test_w14_w15_malformed_proofs_are_refused_before_any_arithmetic(forged: bytes, words: str) -> None:
    assert shape_problem("toploc", forged, 32) is not None
    with pytest.raises(ValueError, match=words):
        check(forged, states(32))


@given(
    st.one_of(
        st.binary(max_size=600),
        st.binary(min_size=516, max_size=516),
        st.lists(st.integers(0, PRIME - 1), min_size=256, max_size=256).map(
            lambda words: b"".join(
                np.array([PRIME - words[0] % 1000, *half], dtype=">u2").tobytes() for half in (words[:128], words[128:])
            )
        ),
    )
)
def test_no_bytes_do_anything_but_be_refused_or_compared(data: bytes) -> None:
    if shape_problem("toploc", data, 40) is not None:
        with pytest.raises(ValueError, match=r"bytes for|modulus|coefficient"):
            check(data, states(40))
    else:
        assert len(check(data, states(40))) == 2


@pytest.mark.parametrize(
    "other",
    [lambda hidden: states(32, seed=5), lambda hidden: hidden.flip(0), lambda hidden: -hidden],
    ids=["other states", "another order", "another sign"],
)
def test_other_states_fail_by_the_published_thresholds(other: object) -> None:
    assert callable(other)
    hidden = states(32)
    assert not check(build(other(hidden)), hidden)[0].passes


def test_the_sign_counts() -> None:
    hidden = states(32).abs()
    flipped = hidden.clone()
    flipped[:, ::2] *= -1
    assert check(build(flipped), hidden)[0].exponent_mismatches > 30


def test_w2_small_noise_passes_and_is_measured() -> None:
    hidden = states(320, 256)
    noisy = hidden * (1 + 0.004 * torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1)))
    figures = check(build(noisy), hidden)
    assert all(each.passes for each in figures)
    assert 0 < float(np.mean([each.mean_mantissa for each in figures])) < 5


def test_w16_what_a_constant_would_score_is_told() -> None:
    """Where all large values are alike, a proof of nothing passes the published thresholds: the model decides."""
    alike = torch.full((32, 256), 0.01)
    alike[:, :16] = 4.0 + 0.05 * torch.randn(32, 16, generator=torch.Generator().manual_seed(0))
    assert forged(alike)[0].passes
    spread = states(32, 256)
    assert not forged(spread)[0].passes


def test_the_constant_that_is_told_is_one_that_a_forger_can_hand_in() -> None:
    hidden = states(64, 300).abs() + 2
    constants = [int(toploc._constants(bits)[0, 0]) for _, bits in toploc._top_values(hidden[:32])]
    proof = np.array([PRIME, constants[0], *[0] * 127], dtype=">u2").tobytes()
    assert check(proof, hidden[:32]) == forged(hidden)[:1]


@given(st.integers(1, 128), st.integers(0, 2**32), st.floats(0, 1))
def test_figures_are_the_plain_mean_and_median_of_what_agrees(count: int, seed: int, share: float) -> None:
    generator = np.random.default_rng(seed)
    bits = generator.integers(0, 0x7F80, (1, count))
    found = np.where(generator.random((1, count)) < share, bits ^ generator.integers(0, 0x80, (1, count)), bits + 0x80)
    (figures,) = toploc._compared(found, bits)
    pairs = zip(found[0].tolist(), bits[0].tolist(), strict=True)
    agreeing = [abs((one & 0x7F) - (other & 0x7F)) for one, other in pairs if one >> 7 == other >> 7]
    assert figures.exponent_mismatches == count - len(agreeing)
    if agreeing:
        assert figures.mean_mantissa == pytest.approx(np.mean(agreeing))
        assert figures.median_mantissa == sorted(agreeing)[len(agreeing) // 2]
    else:
        assert figures.mean_mantissa == figures.median_mantissa == float("inf")
