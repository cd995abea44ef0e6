"""Commitments built while tokens are drawn: of each rollout few states wait, whatever its length.

States come in any number at a time, in order; whole chunks of all rollouts are committed to together and forgotten. The
bytes are those of `proofs.scheme.build` over all of a rollout's states, up to the rounding of another order of sums.
Pure; it does not know engines or files.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.proofs import sketch, toploc
from farflung.proofs.shape import proof_bytes
from farflung.wire.proof import CHUNK_TOKENS, Scheme

CHUNKS_AT_ONCE = 32
"""Chunks that are committed to together: one at a time takes three times as long."""


@dataclass(eq=False, slots=True)
class _Open:
    """One rollout."""

    proof: bytearray = field(default_factory=bytearray)
    num_chunks: int = 0
    """Whole ones so far."""
    rest: Tensor | None = None
    """Fewer states than a chunk has."""


class Commitments:
    """Of the rollouts of one slot, by (group, sample). An `engine.base.StateSink`."""

    def __init__(self, scheme: Scheme, draw_seed: bytes) -> None:
        """
        Args:
            draw_seed: of the lease, 32 bytes.
        """
        self._scheme, self._draw_seed = scheme, draw_seed
        self._open: dict[tuple[int, int], _Open] = {}
        self._whole: list[tuple[_Open, NDArray[np.int32], Tensor]] = []
        """Chunks that wait for others: whose, its key, its states."""

    @property
    def num_waiting(self) -> int:
        """States that are held, of all rollouts."""
        rests = sum(0 if rollout.rest is None else len(rollout.rest) for rollout in self._open.values())
        return rests + CHUNK_TOKENS * len(self._whole)

    def add(self, group: int, sample: int, states_TD: Tensor) -> None:
        """The states that predicted the next tokens of this rollout, any float dtype and device.

        Raises:
            ValueError: as `proofs.scheme.build`.
        """
        rollout = self._open.setdefault((group, sample), _Open())
        states_WD = states_TD if rollout.rest is None else torch.cat((rollout.rest, states_TD))
        whole = len(states_WD) // CHUNK_TOKENS
        if whole:
            keys = self._keys(rollout, group, sample, whole)
            chunks = states_WD[: whole * CHUNK_TOKENS].clone().split(CHUNK_TOKENS)
            self._whole += [(rollout, key, chunk) for key, chunk in zip(keys, chunks, strict=True)]
            rollout.num_chunks += whole
        # Copies, since a part of a tensor keeps all of it.
        rollout.rest = states_WD[whole * CHUNK_TOKENS :].clone()
        if len(self._whole) >= CHUNKS_AT_ONCE:
            self._commit()

    def proof(self, group: int, sample: int) -> bytes:
        """Of all states that were added, which are forgotten.

        Raises:
            KeyError: there are none.
        """
        self._commit()
        rollout = self._open.pop((group, sample))
        if rollout.rest is not None and len(rollout.rest):
            rollout.proof += self._built(rollout.rest, self._keys(rollout, group, sample, 1))
        return bytes(rollout.proof)

    def _commit(self) -> None:
        """All chunks that wait."""
        if not self._whole:
            return
        states_WD = torch.cat([chunk for _, _, chunk in self._whole])
        built = self._built(states_WD, np.stack([key for _, key, _ in self._whole]))
        size = proof_bytes(self._scheme, CHUNK_TOKENS)
        for number, (rollout, _, _) in enumerate(self._whole):
            rollout.proof += built[number * size : (number + 1) * size]
        self._whole.clear()

    def _keys(self, rollout: _Open, group: int, sample: int, count: int) -> NDArray[np.int32]:
        """Of its next chunks; without meaning to `toploc`."""
        return sketch.chunk_keys(self._draw_seed, group, sample, count, first=rollout.num_chunks)

    def _built(self, states_TD: Tensor, keys_C2: NDArray[np.int32]) -> bytes:
        if self._scheme == "toploc":
            return toploc.build(states_TD)
        made = sketch.sketch(states_TD, torch.from_numpy(keys_C2).to(states_TD.device))
        return bytes(made.cpu().numpy().tobytes())
