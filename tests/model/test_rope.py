"""Rotary embeddings."""

import math

import torch

from farflung.model.rope import RopeTable, apply_rope_, inverse_frequencies, pairs_to_halves, pairs_to_neighbours
from farflung.model.rope_scaling import Llama3Rope


def test_a_quarter_turn_by_hand() -> None:
    heads = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    rotation = torch.polar(torch.ones(1, 2), torch.tensor([[math.pi / 2, 0.0]]))
    apply_rope_(heads, rotation)
    torch.testing.assert_close(heads, torch.tensor([[[-2.0, 1.0, 3.0, 4.0]]]))


def test_half_precision_is_rotated_in_float32() -> None:
    heads = torch.randn(5, 2, 8)
    rotation = torch.polar(torch.ones(5, 4), torch.randn(5, 4))
    rounded = heads.bfloat16()
    expected = apply_rope_(rounded.float(), rotation).bfloat16()
    assert torch.equal(apply_rope_(rounded, rotation), expected)


def test_a_grown_table_keeps_the_bits_of_earlier_positions() -> None:
    table = RopeTable(inverse_frequencies(8, 10_000.0), dtype=torch.float32, device="cpu")
    before = table.upto(5).clone()
    after = table.upto(1000)
    assert len(before) >= 5
    assert len(after) >= 1000
    assert torch.equal(after[: len(before)], before)


def test_llama3_keeps_high_frequencies_and_stretches_low_ones() -> None:
    scaling = Llama3Rope(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=100)
    plain, scaled = inverse_frequencies(64, 10_000.0), inverse_frequencies(64, 10_000.0, scaling)
    wavelengths = 2 * math.pi / plain
    assert torch.equal(scaled[wavelengths < 25], plain[wavelengths < 25])
    assert torch.equal(scaled[wavelengths > 100], plain[wavelengths > 100] / 8)
    between = (wavelengths > 25) & (wavelengths < 100)
    assert between.any()
    assert ((scaled < plain) & (scaled > plain / 8))[between].all()


def test_the_two_orders_of_pairs_are_inverse() -> None:
    rows = torch.arange(16.0).unsqueeze(1)
    assert pairs_to_neighbours(rows, 8).flatten().tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]
    assert torch.equal(pairs_to_halves(pairs_to_neighbours(rows, 8), 8), rows)
