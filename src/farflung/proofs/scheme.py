"""Commitments of either scheme, built and compared through one pair of functions.

Both commit to the rows that predicted each token that the model drew: post final norm, one per token and in order, the
first of them from the prefill; 32 of them make a chunk, and the last chunk has what is left. What bytes can be a proof
at all is `proofs.shape`, a check that comes before these. Pure; it does not know models, files or thresholds.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from farflung.proofs import sketch, toploc
from farflung.proofs.shape import num_chunks
from farflung.wire.proof import Scheme


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A rollout's proof beside the verifier's own states; both of its parts have one number per chunk, in order."""

    distances: tuple[float, ...]
    """`sketch`: root mean square of the difference, about the relative error of the states, sqrt(2) for other states.
    `toploc`: share of the published thresholds, whichever is nearest to its own or furthest beyond; 1 is the limit."""
    forgeries: tuple[float, ...]
    """How far bytes lie that were made without a model: zeros of `sketch`, the best constant of `toploc`."""


def build(scheme: Scheme, hidden_TD: Tensor, draw_seed: bytes, group: int, sample: int) -> bytes:
    """The commitment to one rollout's states.

    Args:
        hidden_TD: any float dtype and device.
        draw_seed: of the lease, 32 bytes; `toploc` does not depend on it, nor on the place in the file.

    Raises:
        ValueError: `toploc` only: a state is not finite, or no modulus keeps the indices of a chunk apart.
    """
    if scheme == "sketch":
        return sketch.build(hidden_TD, draw_seed, group, sample)
    return toploc.build(hidden_TD)


def compare(scheme: Scheme, proof: bytes, hidden_TD: Tensor, draw_seed: bytes, group: int, sample: int) -> Comparison:
    """The claimed commitment beside the verifier's own states; arguments as in `build`.

    Raises:
        ValueError: the bytes do not have the shape (`shape_problem`); `toploc`: a state is not finite.
    """
    if scheme == "sketch":
        keys = sketch.chunk_keys(draw_seed, group, sample, num_chunks(len(hidden_TD)))
        own_T8 = sketch.sketch(hidden_TD, torch.from_numpy(keys).to(hidden_TD.device))
        nothing = bytes(own_T8.numel())
        return Comparison(
            distances=tuple(sketch.distances(proof, own_T8).tolist()),
            forgeries=tuple(sketch.distances(nothing, own_T8).tolist()),
        )
    figures, forged = toploc.check_and_forge(proof, hidden_TD)
    return Comparison(
        distances=tuple(each.distance for each in figures), forgeries=tuple(each.distance for each in forged)
    )
