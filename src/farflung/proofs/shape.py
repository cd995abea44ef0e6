"""What bytes can be a proof at all, which is checked before anything is computed from them. Needs no torch."""

import numpy as np

from farflung.wire.proof import CHUNK_TOKENS, Scheme

SKETCH_BYTES_PER_TOKEN = 8
"""`proofs.sketch`."""
TOPLOC_BYTES_PER_CHUNK = 258
"""The published format: two bytes of modulus, 128 coefficients of two."""
TOPLOC_PRIME = 65497
"""0xFFD9, the largest prime below 2**16 that the format uses. The 39 patterns above it are NaNs."""
TOPLOC_LEAST_MODULUS = 1 << 15
"""Exclusive: the reference's search gives up there."""


def num_chunks(num_tokens: int) -> int:
    """Commitments of so many tokens; the last may cover fewer than `CHUNK_TOKENS`."""
    return -(-num_tokens // CHUNK_TOKENS)


def proof_bytes(scheme: Scheme, num_tokens: int) -> int:
    """Of a rollout whose model drew so many tokens."""
    if scheme == "sketch":
        return num_tokens * SKETCH_BYTES_PER_TOKEN
    return num_chunks(num_tokens) * TOPLOC_BYTES_PER_CHUNK


def shape_problem(scheme: Scheme, proof: bytes, num_tokens: int) -> str | None:
    """Why these bytes cannot be a proof of so many tokens; None when they can."""
    expected = proof_bytes(scheme, num_tokens)
    if len(proof) != expected:
        return f"{len(proof)} bytes for {num_tokens} tokens, which take {expected}"
    return _toploc_problem(proof) if scheme == "toploc" else None


def _toploc_problem(proof: bytes) -> str | None:
    """Moduli that divide by zero or keep nothing apart (null proofs have 0), and numbers that the field lacks."""
    words = np.frombuffer(proof, dtype=">u2").reshape(-1, TOPLOC_BYTES_PER_CHUNK // 2)
    moduli, coefficients = words[:, 0], words[:, 1:]
    wrong = (moduli <= TOPLOC_LEAST_MODULUS) | (moduli > TOPLOC_PRIME)
    if wrong.any():
        chunk = int(wrong.argmax())
        return f"modulus {moduli[chunk]} in chunk {chunk}: it must lie in ({TOPLOC_LEAST_MODULUS}, {TOPLOC_PRIME}]"
    if (coefficients >= TOPLOC_PRIME).any():
        return f"a coefficient of {coefficients.max()}: the field has {TOPLOC_PRIME} elements"
    return None
