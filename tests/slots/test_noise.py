"""The generator: golden values, and the statistics that make a draw fair."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.slots.noise import gumbel_noise, noise_bits, position_keys, row_keys, uniforms

SEED = bytes(range(32))


def bits_of(num_rows: int, num_positions: int, vocab_size: int, seed: bytes = SEED) -> np.ndarray:
    """[rows, positions, tokens] noise bits of group 0."""
    keys = position_keys(row_keys(seed, [(0, sample) for sample in range(num_rows)]), np.arange(num_positions))
    return noise_bits(keys.reshape(-1, 2), vocab_size).reshape(num_rows, num_positions, vocab_size)


def chi_square_sigmas(counts: np.ndarray) -> float:
    """Distance of chi-square from its mean in standard deviations (nearly normal for this many cells)."""
    expected = counts.sum() / counts.size
    degrees = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - degrees) / np.sqrt(2 * degrees))


def correlation_sigmas(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1] * np.sqrt(a.size))


def test_golden_values_never_change() -> None:
    keys = row_keys(SEED, [(0, 0), (0, 1), (1, 0), (31, 7)])
    assert keys.tolist() == GOLDEN_ROW_KEYS
    at_positions = position_keys(keys[:2], np.array([0, 1, 4095]))
    assert at_positions[1].tolist() == GOLDEN_POSITION_KEYS
    bits = noise_bits(at_positions.reshape(-1, 2), 49_152)
    assert bits[4, [0, 1, 2, 49_151]].tolist() == GOLDEN_BITS
    assert hashlib.sha256(bits.tobytes()).hexdigest() == GOLDEN_SHA256


def test_the_first_word_follows_the_written_construction() -> None:
    """The module docstring, spelled out in Python integers."""

    def mix(x: int) -> int:
        x ^= x >> 16
        x = x * 0x21F0AAAD % 2**32
        x ^= x >> 15
        x = x * 0xD35A2D97 % 2**32
        return x ^ x >> 15

    hasher = hashlib.blake2b(key=SEED, digest_size=8, person=b"farflung/noise/1")
    hasher.update((3).to_bytes(8, "little") + (5).to_bytes(8, "little"))
    k0, k1 = (int.from_bytes(hasher.digest()[i : i + 4], "little") for i in (0, 4))
    position, token, phi = 77, 41, 0x9E3779B9
    a = mix(k0 ^ position * phi % 2**32)
    b = mix((k1 + a) % 2**32)
    expected = mix((mix(token * phi % 2**32 ^ a) + b) % 2**32) % 2**31
    keys = position_keys(row_keys(SEED, [(3, 5)]), np.array([position]))
    assert noise_bits(keys[0], 64)[0, token] == expected


@given(st.binary(min_size=1, max_size=64), st.integers(0, 2**31), st.integers(0, 2**31))
def test_a_row_key_depends_on_seed_group_and_sample(seed: bytes, group: int, sample: int) -> None:
    own, next_group, next_sample = row_keys(seed, [(group, sample), (group + 1, sample), (group, sample + 1)]).tolist()
    assert own != next_group
    assert own != next_sample
    assert own == row_keys(seed, [(group, sample)]).tolist()[0]
    assert own != row_keys(bytes([seed[0] ^ 1]) + seed[1:], [(group, sample)]).tolist()[0]


@pytest.mark.parametrize("seed", [b"", b"x" * 65])
def test_a_seed_that_blake2b_cannot_key_is_refused(seed: bytes) -> None:
    with pytest.raises(ValueError, match="it must have 1 to 64"):
        row_keys(seed, [(0, 0)])


def test_uniforms_lie_strictly_between_zero_and_one_and_round_once() -> None:
    bits = np.array([0, 1, 2**23, 2**24 + 1, 2**31 - 65, 2**31 - 1], dtype=np.int32)
    v = uniforms(bits)
    assert v[0] == np.float32(2.0**-32)
    assert v[-1] == np.float32(1 - 2.0**-24)
    assert np.all((v > 0) & (v < 1))
    rounded = bits.astype(np.float32).astype(np.float64) + 0.5
    assert v[:-1].tolist() == (rounded.astype(np.float32).astype(np.float64) * 2.0**-31)[:-1].tolist()


def test_every_noise_value_is_finite_and_the_upper_tail_reaches_beyond_float32_uniforms() -> None:
    extremes = uniforms(np.array([0, 2**31 - 1], dtype=np.int32))
    largest, smallest = -np.log(-np.log1p(-extremes))
    assert largest == pytest.approx(22.18, abs=0.01)
    assert smallest == pytest.approx(-2.81, abs=0.01)


def test_bits_are_uniform_over_tokens_positions_and_rows() -> None:
    bits = bits_of(num_rows=64, num_positions=64, vocab_size=256)
    for shift in (0, 7, 15, 23):  # low, middle and high bytes
        cells = (bits >> shift) & 255
        assert abs(chi_square_sigmas(np.bincount(cells.ravel(), minlength=256))) < 4.5
    for axis in range(3):  # each token, each position, each row on its own: 256 + 64 + 64 tests
        per_index = np.moveaxis(bits >> 27, axis, 0).reshape(bits.shape[axis], -1)
        worst = max(abs(chi_square_sigmas(np.bincount(row, minlength=16))) for row in per_index)
        assert worst < 6.5


def test_consecutive_pairs_of_tokens_fill_the_square() -> None:
    bits = bits_of(num_rows=32, num_positions=32, vocab_size=513) >> 26
    pairs = bits[..., :-1] * 32 + bits[..., 1:]
    assert abs(chi_square_sigmas(np.bincount(pairs.ravel(), minlength=1024))) < 4.5


@pytest.mark.parametrize("distance", [1, 2, 3, 8, 64])
def test_neighbours_in_every_direction_are_uncorrelated(distance: int) -> None:
    v = uniforms(bits_of(num_rows=128, num_positions=80, vocab_size=96))
    for axis in range(3):
        near = np.take(v, range(v.shape[axis] - distance), axis)
        far = np.take(v, range(distance, v.shape[axis]), axis)
        assert abs(correlation_sigmas(near, far)) < 4.5


def test_seeds_that_differ_in_one_bit_are_uncorrelated() -> None:
    v = uniforms(bits_of(num_rows=64, num_positions=64, vocab_size=64))
    flipped = uniforms(bits_of(num_rows=64, num_positions=64, vocab_size=64, seed=bytes([SEED[0] ^ 128]) + SEED[1:]))
    assert abs(correlation_sigmas(v, flipped)) < 4.5


def test_one_bit_of_either_key_word_flips_every_output_bit_half_of_the_time() -> None:
    keys = row_keys(SEED, [(group, 0) for group in range(2048)])
    bits = noise_bits(keys, 8)
    for word in range(2):
        for bit in range(0, 32, 3):
            flipped = keys.view(np.uint32).copy()
            flipped[:, word] ^= np.uint32(1 << bit)
            changed = bits ^ noise_bits(flipped.view(np.int32), 8)
            for output_bit in range(31):
                share = ((changed >> output_bit) & 1).mean()
                assert abs(share - 0.5) * 2 * np.sqrt(changed.size) < 5.5, (word, bit, output_bit)


def test_keys_of_positions_and_rows_do_not_collide() -> None:
    keys = position_keys(row_keys(SEED, [(0, sample) for sample in range(256)]), np.arange(1024)).reshape(-1, 2)
    assert len(np.unique(keys.view(np.int64))) == len(keys)


def test_largest_noise_plus_logprobs_draws_the_softmax() -> None:
    logits = np.random.default_rng(0).normal(size=24) * 2
    probabilities = np.exp(logits) / np.exp(logits).sum()
    keys = position_keys(row_keys(SEED, [(0, sample) for sample in range(400)]), np.arange(500)).reshape(-1, 2)
    drawn = np.argmax(np.log(probabilities) + gumbel_noise(keys, 24), axis=-1)
    counts = np.bincount(drawn, minlength=24)
    expected = probabilities * counts.sum()
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - 23) < 4.5 * np.sqrt(2 * 23)


def test_moments_are_those_of_the_gumbel_distribution() -> None:
    keys = position_keys(row_keys(SEED, [(0, sample) for sample in range(64)]), np.arange(64)).reshape(-1, 2)
    noise = gumbel_noise(keys, 256).astype(np.float64)
    assert noise.mean() == pytest.approx(np.euler_gamma, abs=0.006)
    assert noise.var() == pytest.approx(np.pi**2 / 6, abs=0.015)


GOLDEN_ROW_KEYS = [[518379994, 1715007277], [-1665918752, -1789358240], [1354191528, 1729069524], [522204538, 57576187]]
GOLDEN_POSITION_KEYS = [[662274081, 1125599118], [828395680, 210669733], [-856984024, -981070534]]
GOLDEN_BITS = [1385372041, 2010908765, 1760209532, 520162616]
GOLDEN_SHA256 = "ed949697d4205232410241a4f2db6db67adfcb54a37682ebc1d6eb01c65bd0b0"
