"""Several optimizer steps from one batch: its samples in a drawn order, cut into equal parts.

The order is a function of the seed and the number of samples alone: who repeats a version repeats its steps.
"""

import hashlib
from collections.abc import Sequence

from farflung.rl.types import TrainingSample


def minibatches(samples: Sequence[TrainingSample], count: int, seed: int) -> list[list[TrainingSample]]:
    """At most `count` parts whose numbers of samples differ by at most one; none is empty.

    Args:
        count: 1 leaves the samples in their order.
        seed: 64 bits, of the policy version.

    Raises:
        ValueError: `count` is below 1.
    """
    if count < 1:
        raise ValueError(f"{count} minibatches: there must be at least 1")
    if count == 1:
        return [list(samples)] if samples else []
    key = seed.to_bytes(8, "big")
    order = sorted(range(len(samples)), key=lambda index: _draw(key, index))
    parts = min(count, len(samples))
    return [[samples[index] for index in sorted(order[part::parts])] for part in range(parts)]


def _draw(key: bytes, index: int) -> bytes:
    return hashlib.blake2b(index.to_bytes(8, "big"), digest_size=8, key=key).digest()
