"""Commitments on the fly: the bytes of one build over everything, whatever portions the states came in."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.proofs.commitments import CHUNKS_AT_ONCE, Commitments
from farflung.proofs.scheme import build, compare
from farflung.wire.proof import CHUNK_TOKENS, Scheme

SEED = bytes(range(32))
SCHEMES: tuple[Scheme, ...] = ("sketch", "toploc")


def states(num_tokens: int, width: int = 40, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_tokens, width, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=25)
@given(st.sampled_from(SCHEMES), st.lists(st.integers(1, 80), min_size=1, max_size=6))
def test_portions_make_no_difference(scheme: Scheme, portions: list[int]) -> None:
    everything = states(sum(portions))
    made = Commitments(scheme, SEED)
    for part in everything.split(portions):
        made.add(2, 5, part)
    proof = made.proof(2, 5)
    assert len(proof) == len(build(scheme, everything, SEED, 2, 5))
    # A product of other shapes may round a sum to the other side of one half.
    assert max(compare(scheme, proof, everything, SEED, 2, 5).distances) < 0.01


@pytest.mark.parametrize("scheme", SCHEMES)
def test_rollouts_come_side_by_side(scheme: Scheme) -> None:
    made = Commitments(scheme, SEED)
    rows = {(group, sample): states(50, seed=10 * group + sample) for group in range(2) for sample in range(3)}
    for start in range(0, 50, 7):
        for place, row in rows.items():
            made.add(*place, row[start : start + 7])
    for place, row in rows.items():
        assert max(compare(scheme, made.proof(*place), row, SEED, *place).distances) < 0.01


def test_states_are_forgotten_chunk_by_chunk() -> None:
    made = Commitments("sketch", SEED)
    for part in states(100 * CHUNK_TOKENS + 3).split(CHUNK_TOKENS - 1):
        made.add(0, 0, part)
        assert made.num_waiting < CHUNK_TOKENS * (CHUNKS_AT_ONCE + 1)
    assert len(made.proof(0, 0)) == 8 * (100 * CHUNK_TOKENS + 3)
    assert made.num_waiting == 0
    with pytest.raises(KeyError):
        made.proof(0, 0)


def test_a_part_of_a_larger_tensor_does_not_keep_it() -> None:
    large = states(1000)
    made = Commitments("sketch", SEED)
    made.add(0, 0, large[:40])
    expected = build("sketch", large[:40].clone(), SEED, 0, 0)
    large.zero_()
    assert np.abs(np.frombuffer(made.proof(0, 0), np.int8).astype(int) - np.frombuffer(expected, np.int8)).max() <= 1
