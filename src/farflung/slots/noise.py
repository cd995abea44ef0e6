"""The public randomness that tokens are drawn with: a counter-based generator, the same bits in numpy and torch.

    row key        (k0, k1) = blake2b-64(group | sample, key = draw seed)                  host, once per completion
    position key   a = mix(k0 ^ position * PHI),  b = mix(k1 + a)                          once per position
    bits           mix(mix(token * PHI ^ a) + b)  mod 2**31                                once per token id
    v              (bits + 0.5) * 2**-31 in float32, at most 1 - 2**-24
    Gumbel         g = -log(E),  E = -log1p(-v)

All integers are 32-bit and wrap; `mix` is a bijection (below), so positions of a row never share a key and token ids of
a position never share bits. The seed is public once the lease is signed, so `mix` need not resist an adversary: the
row key, which a worker cannot choose, comes from a cryptographic hash, and `mix` only has to look independent across
token ids, positions and rows (tests/slots/test_noise.py: uniformity, correlations, avalanche, softmax frequencies).

DESIGN's `u` is `1 - v`. Working with `v` keeps the resolution where Gumbel-max needs it: a large g is a `v` near 0,
where float32 has steps of 2**-31 and below. A float32 `u` near 1 has steps of 2**-24, so every token less likely than
about 1e-7 would be drawn by ties, and g would end at 16.6 in place of 22.2.

`bits` and `v` are exact on every device (integer operations, one rounding, a power of two). `log` and `log1p` are not
specified by IEEE 754 and differ between devices in the last bit, far below the noise of the logits that g is added to.

`proofs.draws` is the torch twin. This module does not know logits, temperatures or batches.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

GOLDEN_RATIO = 0x9E3779B9
"""PHI: 2**32 / golden ratio, odd; spreads consecutive counters over all 32 bits. Changing it changes every draw."""
MIX_SHIFTS = (16, 15, 15)
MIX_FACTORS = (0x21F0AAAD, 0xD35A2D97)
"""`mix`: the two-multiply xorshift hash of lowest known avalanche bias (github.com/skeeto/hash-prospector, "lowbias32",
bias 0.107). Changing it changes every draw."""
NUM_BITS = 31
LARGEST_BELOW_ONE = float(np.float32(1 - 2**-24))
MAX_SEED_BYTES = 64
"""Longest key of blake2b."""

_PERSON = b"farflung/noise/1"


def row_keys(draw_seed: bytes, rows: Iterable[tuple[int, int]]) -> NDArray[np.int32]:
    """Keys [R, 2] of completions, given as (group, sample) pairs.

    Raises:
        ValueError: the seed is empty or longer than 64 bytes.
    """
    if not 0 < len(draw_seed) <= MAX_SEED_BYTES:
        raise ValueError(f"draw_seed has {len(draw_seed)} bytes: it must have 1 to {MAX_SEED_BYTES}")
    keyed = hashlib.blake2b(key=draw_seed, digest_size=8, person=_PERSON)
    digests = []
    for group, sample in rows:
        hasher = keyed.copy()
        hasher.update(group.to_bytes(8, "little") + sample.to_bytes(8, "little"))
        digests.append(hasher.digest())
    return np.frombuffer(b"".join(digests), dtype="<i4").astype(np.int32).reshape(-1, 2)


def position_keys(row_keys_R2: NDArray[np.int32], positions_T: NDArray[np.integer]) -> NDArray[np.int32]:
    """Keys [R, T, 2]: every row's key at every completion position (0 = the first completion token)."""
    words = row_keys_R2.view(np.uint32)[:, None, :]
    positions = positions_T.astype(np.uint32)[None, :]
    a = _mix(words[..., 0] ^ (positions * np.uint32(GOLDEN_RATIO)))
    b = _mix(words[..., 1] + a)
    return np.stack((a, b), axis=-1).view(np.int32)


def noise_bits(keys_N2: NDArray[np.int32], vocab_size: int) -> NDArray[np.int32]:
    """Uniform integers [N, V] in [0, 2**31), one per token id, from position keys."""
    words = keys_N2.view(np.uint32)
    tokens = np.arange(vocab_size, dtype=np.uint32) * np.uint32(GOLDEN_RATIO)
    bits = _mix(_mix(tokens ^ words[:, :1]) + words[:, 1:])
    return (bits & np.uint32(2**NUM_BITS - 1)).view(np.int32)


def uniforms(bits: NDArray[np.int32]) -> NDArray[np.float32]:
    """float32 `v` in (0, 1), exact on every device."""
    v = (bits.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-NUM_BITS)
    clamped: NDArray[np.float32] = np.minimum(v, np.float32(LARGEST_BELOW_ONE))
    return clamped


def gumbel_noise(keys_N2: NDArray[np.int32], vocab_size: int) -> NDArray[np.float32]:
    """Standard Gumbel noise [N, V] for `N` position keys."""
    noise: NDArray[np.float32] = -np.log(-np.log1p(-uniforms(noise_bits(keys_N2, vocab_size))))
    return noise


def _mix(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """A bijection of 32-bit words in which each input bit flips each output bit with probability close to 1/2."""
    x = x ^ (x >> np.uint32(MIX_SHIFTS[0]))
    x = x * np.uint32(MIX_FACTORS[0])
    x = x ^ (x >> np.uint32(MIX_SHIFTS[1]))
    x = x * np.uint32(MIX_FACTORS[1])
    return x ^ (x >> np.uint32(MIX_SHIFTS[2]))
