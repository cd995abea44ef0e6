"""Commitments to hidden states: a few random projections of each row, in 256 bytes per 32 tokens.

    u_t  = h_t * sqrt(d) / |h_t|                            states that predicted the token, post final norm
    z_tj = 32 / sqrt(d) * sum_i u_ti s_ij                   j < 8; s_ij = +1 or -1, another matrix for every chunk
    commitment: z rounded and clipped to int8, row by row

    distance of a chunk = sqrt(mean((z - z')^2)) / 32

z has a standard deviation of 32, whatever the model: rows of another model are sqrt(2) away, a constant or zeros 1, the
same computation 0. The signs follow from the draw seed, which a node learns with its lease, so nothing can be prepared
before. Rows that are zero or not finite commit to zeros and agree with nothing. Figures on a real model are in DESIGN
section 5. Pure; it does not know models, files or thresholds.
"""

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.proofs.draws import noise_bits
from farflung.proofs.shape import num_chunks, shape_problem
from farflung.wire.proof import CHUNK_TOKENS

NUM_SKETCHES = 8
"""Projections of a row. Changing it changes every commitment."""
SCALE = 32.0
"""int8 steps of one standard deviation: clipped beyond 3.97 of them, and rounding costs 0.009 of one."""
LARGEST = 127

_SIGNS_OF_BYTE = torch.tensor([[1.0 - 2.0 * (byte >> bit & 1) for bit in range(8)] for byte in range(256)])
_PERSON = b"farflung/skch/1"


def chunk_keys(draw_seed: bytes, group: int, sample: int, num: int, *, first: int = 0) -> NDArray[np.int32]:
    """int32 keys [C, 2] of the sign matrices of `num` of a rollout's chunks, from the `first` on."""
    keyed = hashlib.blake2b(key=draw_seed, digest_size=8, person=_PERSON)
    digests = []
    for chunk in range(first, first + num):
        hasher = keyed.copy()
        hasher.update(b"".join(number.to_bytes(8, "little") for number in (group, sample, chunk)))
        digests.append(hasher.digest())
    return np.frombuffer(b"".join(digests), dtype="<i4").astype(np.int32).reshape(-1, 2)


def signs(keys_C2: Tensor, width: int) -> Tensor:
    """float32 [C, D, 8] of +1 and -1: eight bits of one counter-based word per chunk and dimension."""
    bytes_CD = noise_bits(keys_C2, width).bitwise_and_(255)
    return torch.nn.functional.embedding(bytes_CD, _SIGNS_OF_BYTE.to(keys_C2.device))


def sketch(hidden_TD: Tensor, keys_C2: Tensor) -> Tensor:
    """int8 [T, 8] of the rows of one rollout, from its `chunk_keys`; C = `num_chunks(T)`.

    Args:
        hidden_TD: post-final-norm states that predicted each token, any float dtype.
    """
    num_tokens, width = hidden_TD.shape
    rows_TD = hidden_TD.float()
    signs_C8D = signs(keys_C2, width).mT
    whole = num_tokens // CHUNK_TOKENS
    cut = whole * CHUNK_TOKENS
    parts = []
    if whole:  # this way round, as the products have eight rows and not eight columns: four times as fast
        parts.append(torch.bmm(signs_C8D[:whole], rows_TD[:cut].view(whole, CHUNK_TOKENS, width).mT).mT)
    if cut < num_tokens:
        parts.append((signs_C8D[whole] @ rows_TD[cut:].mT).mT)
    sums_T8 = torch.cat([part.reshape(-1, NUM_SKETCHES) for part in parts])
    # Scaled afterwards, which is a pass over eight columns and not over all of them.
    norms_T1 = torch.linalg.vector_norm(rows_TD, dim=-1, keepdim=True)
    values_T8 = torch.where(torch.isfinite(norms_T1) & (norms_T1 > 0), sums_T8 * (SCALE / norms_T1), 0.0)
    return values_T8.round_().clamp_(-LARGEST, LARGEST).to(torch.int8)


def build(hidden_TD: Tensor, draw_seed: bytes, group: int, sample: int) -> bytes:
    """The commitment to one rollout's states: 8 bytes per token (`proofs.shape`)."""
    keys = chunk_keys(draw_seed, group, sample, num_chunks(len(hidden_TD)))
    keys_C2 = torch.from_numpy(keys).to(hidden_TD.device)
    return bytes(sketch(hidden_TD, keys_C2).cpu().numpy().tobytes())


def distances(proof: bytes, own_T8: Tensor) -> NDArray[np.float32]:
    """Distance of each chunk [C] between claimed bytes and the verifier's own `sketch`.

    Raises:
        ValueError: the bytes do not have the shape (`shape_problem`).
    """
    if problem := shape_problem("sketch", proof, len(own_T8)):
        raise ValueError(problem)
    claimed = np.frombuffer(proof, dtype=np.int8).reshape(-1, NUM_SKETCHES).astype(np.float32)
    squares = np.square(claimed - own_T8.cpu().numpy().astype(np.float32)).sum(axis=1) / (NUM_SKETCHES * SCALE**2)
    starts = np.arange(0, len(squares), CHUNK_TOKENS)
    sizes = np.diff([*starts, len(squares)])
    result: NDArray[np.float32] = np.sqrt(np.add.reduceat(squares, starts) / sizes).astype(np.float32)
    return result
