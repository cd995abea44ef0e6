"""Vectors of the `toploc` library, for the test that our bytes are its bytes and our figures its figures.

    VENV/bin/python -m benchmarks.toploc_vectors > tests/proofs/toploc_vectors.json

VENV is that of `benchmarks.proofs`. States are made from a hash, with 128 values in each chunk that stand out and
differ, so that the largest are the same whoever looks for them.
"""

import hashlib
import importlib
import json
import sys

import numpy as np
import torch
from torch import Tensor

SHAPES = ((32, 8), (96, 576), (70, 100), (64, 5120), (160, 5120))
"""Rows, width. The wide ones have more indices than the field has elements."""
CHUNK_ROWS, TOP_VALUES = 32, 128


def vector_states(num_rows: int, width: int, name: str) -> Tensor:
    """bfloat16 [T, D]."""
    parts = []
    for start in range(0, num_rows, CHUNK_ROWS):
        size = min(CHUNK_ROWS, num_rows - start) * width
        words = np.frombuffer(hashlib.shake_256(f"{name}/{start}".encode()).digest(4 * size), dtype="<u4")
        small = (words % 2000).astype(np.float32) / 1000 - 1
        order = np.argsort(words, kind="stable")[:TOP_VALUES]
        sizes = (0x4000 + 2 * np.arange(len(order))).astype(np.uint32) << 16  # bit patterns from 2.0 up
        small[order] = sizes.view(np.float32) * np.where(words[order] & 1, -1, 1)
        parts.append(small.reshape(-1, width))
    return torch.from_numpy(np.concatenate(parts)).to(torch.bfloat16)


def vector_noise(states: Tensor) -> Tensor:
    """The same states as if computed elsewhere: each pattern up to 3 steps up, in some places a whole exponent."""
    bits = states.view(torch.int16).numpy().astype(np.int32)
    steps = np.arange(bits.size).reshape(bits.shape)
    moved = bits + steps % 4 + np.where(steps % 11 == 0, 128, 0)
    return torch.from_numpy(moved.astype(np.int16)).view(torch.bfloat16)


def main() -> None:
    library = importlib.import_module("toploc")
    vectors = []
    for num_rows, width in SHAPES:
        name = f"{num_rows} x {width}"
        states = vector_states(num_rows, width, name)
        proofs = library.build_proofs_bytes([row[None] for row in states], CHUNK_ROWS, TOP_VALUES, True)
        found = library.verify_proofs_bytes(vector_noise(states), proofs, CHUNK_ROWS, TOP_VALUES, True)
        figures = [(each.exp_mismatches, float(each.mant_err_mean), float(each.mant_err_median)) for each in found]
        proof = b"".join(proofs).hex()
        vectors.append({"rows": num_rows, "width": width, "name": name, "proof": proof, "figures": figures})
    json.dump(vectors, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
