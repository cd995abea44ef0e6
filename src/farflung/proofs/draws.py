"""Seeded Gumbel-max draws in torch; the noise has the same bits as `slots.noise`, which states the construction.

    token   = argmax over ids of (log_softmax(logits) + g),  ties to the lower id
    logprob = log_softmax(logits)[token]

Logits are float32, already divided by the temperature, with reserved ids at -inf. Engine and verifier share this file,
so that they agree on what was drawn. Pure: keys are arguments. It does not know where logits come from.
"""

import torch
from torch import Tensor

from farflung.slots.noise import GOLDEN_RATIO, LARGEST_BELOW_ONE, MIX_FACTORS, MIX_SHIFTS, NUM_BITS

CPU_BLOCK_ELEMENTS = 1 << 16
"""Noise is made, and tokens are drawn, in blocks of about this many elements, so that the temporaries stay in a core's
cache: at 49,000 ids and 64 rows drawing takes a third of the time that it takes in one block."""

VECTOR_ELEMENTS = 32
"""What torch's CPU kernels compute at a time; the rest of an array goes through scalar code with other last bits, so
the vocabulary is padded to a multiple of this."""


def _int32(word: int) -> Tensor:
    """A 32-bit word as a 0-dim tensor: half the call overhead of a Python number, and the same on every device."""
    return torch.tensor(word - (1 << 32) if word >= 1 << 31 else word, dtype=torch.int32)


_GOLDEN_RATIO = _int32(GOLDEN_RATIO)
_LOW_BITS = _int32(2**NUM_BITS - 1)
_SHIFTS = tuple(_int32(shift) for shift in MIX_SHIFTS)
_SHIFT_MASKS = tuple(_int32(2 ** (32 - shift) - 1) for shift in MIX_SHIFTS)
_FACTORS = tuple(_int32(factor) for factor in MIX_FACTORS)


def position_keys(row_keys: Tensor, positions: Tensor) -> Tensor:
    """int32 keys [..., 2] at completion `positions` [...], from int32 row keys [..., 2] that broadcast with them."""
    counters = positions.to(torch.int32) * _GOLDEN_RATIO
    a = _mix_(row_keys[..., 0] ^ counters)
    b = _mix_(row_keys[..., 1] + a)
    return torch.stack((a, b), dim=-1)


def noise_bits(keys_N2: Tensor, vocab_size: int) -> Tensor:
    """int32 [N, V] in [0, 2**31) from position keys, the bits of `slots.noise.noise_bits`."""
    return _bits(_counters(vocab_size, keys_N2.device), keys_N2)


def uniforms(bits: Tensor) -> Tensor:
    """float32 `v` in (0, 1), the bits of `slots.noise.uniforms`."""
    return bits.to(torch.float32).add_(0.5).mul_(2.0**-NUM_BITS).clamp_(max=LARGEST_BELOW_ONE)


def gumbel_noise(keys_N2: Tensor, vocab_size: int, *, out: Tensor | None = None) -> Tensor:
    """float32 standard Gumbel noise [N, V] for int32 position keys [N, 2].

    Args:
        out: float32 [N, `padded(V)`], where to put it.
    """
    device = keys_N2.device
    num_rows, num_columns = len(keys_N2), padded(vocab_size)
    noise = torch.empty(num_rows, num_columns, device=device) if out is None else out
    counters_V = _counters(num_columns, device)
    block = _block_rows(num_columns, num_rows, device)
    for keys, part in zip(keys_N2.split(block), noise.split(block), strict=True):
        v = uniforms(_bits(counters_V, keys))
        torch.log(v.neg_().log1p_().neg_(), out=part).neg_()
    return noise[:, :vocab_size]


def padded(vocab_size: int) -> int:
    """Columns that `gumbel_noise` computes."""
    return -(-vocab_size // VECTOR_ELEMENTS) * VECTOR_ELEMENTS


def draw(logits_NV: Tensor, noise_NV: Tensor | None) -> tuple[Tensor, Tensor]:
    """Tokens int64 [N] and their logprobs float32 [N]; without noise the most likely token (greedy)."""
    num_rows, vocab_size = logits_NV.shape
    block = _block_rows(vocab_size, num_rows, logits_NV.device)
    if num_rows <= block:
        return _draw(logits_NV, noise_NV)
    noises = [None] * -(-num_rows // block) if noise_NV is None else noise_NV.split(block)
    drawn = [_draw(logits, noise) for logits, noise in zip(logits_NV.split(block), noises, strict=True)]
    tokens, logprobs = zip(*drawn, strict=True)
    return torch.cat(tokens), torch.cat(logprobs)


def _draw(logits_NV: Tensor, noise_NV: Tensor | None) -> tuple[Tensor, Tensor]:
    logprobs_NV = torch.log_softmax(logits_NV, dim=-1)
    scores_NV = logprobs_NV if noise_NV is None else logprobs_NV + noise_NV
    tokens_N1 = scores_NV.argmax(dim=-1, keepdim=True)  # torch promises the first of equal maxima
    return tokens_N1.squeeze(-1), logprobs_NV.gather(-1, tokens_N1).squeeze(-1)


def _block_rows(num_columns: int, num_rows: int, device: torch.device) -> int:
    return max(1, CPU_BLOCK_ELEMENTS // num_columns if device.type == "cpu" else num_rows)


def _counters(num_tokens: int, device: torch.device) -> Tensor:
    """int32 [V]: what tells token ids apart."""
    return torch.arange(num_tokens, dtype=torch.int32, device=device).mul_(_GOLDEN_RATIO)


def _bits(counters_V: Tensor, keys_N2: Tensor) -> Tensor:
    bits = _mix_(counters_V ^ keys_N2[:, :1]).add_(keys_N2[:, 1:])
    return _mix_(bits).bitwise_and_(_LOW_BITS)


def _mix_(x: Tensor) -> Tensor:
    """`slots.noise`'s `mix` in place on int32. torch shifts int32 arithmetically: the mask drops the copied sign."""
    scratch = torch.empty_like(x)
    _xor_shifted_(x, scratch, 0)
    _xor_shifted_(x.mul_(_FACTORS[0]), scratch, 1)
    return _xor_shifted_(x.mul_(_FACTORS[1]), scratch, 2)


def _xor_shifted_(x: Tensor, scratch: Tensor, index: int) -> Tensor:
    torch.bitwise_right_shift(x, _SHIFTS[index], out=scratch)
    return x.bitwise_xor_(scratch.bitwise_and_(_SHIFT_MASKS[index]))
