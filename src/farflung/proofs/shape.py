"""How many bytes a proof has, which is checked before anything is computed from it. Needs no torch."""

from farflung.wire.proof import CHUNK_TOKENS, Scheme

SKETCH_BYTES_PER_TOKEN = 8
"""`proofs.sketch`."""
TOPLOC_BYTES_PER_CHUNK = 258
"""The published format: two bytes of modulus, 128 coefficients of two."""


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
    return None if len(proof) == expected else f"{len(proof)} bytes for {num_tokens} tokens, which take {expected}"
