"""Commitments built while tokens are drawn: of each rollout at most a chunk's states wait, whatever its length.

States come in any number at a time, in order; whole chunks are committed to at once and forgotten. The bytes are those
of `proofs.scheme.build` over all of a rollout's states, up to the rounding of another order of sums. Pure; it does not
know engines or files.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from farflung.proofs import sketch, toploc
from farflung.proofs.shape import num_chunks
from farflung.wire.proof import CHUNK_TOKENS, Scheme


@dataclass(eq=False, slots=True)
class _Open:
    """One rollout."""

    proof: bytearray = field(default_factory=bytearray)
    num_committed: int = 0
    """Chunks."""
    waiting: list[Tensor] = field(default_factory=list)
    num_waiting: int = 0
    """States."""


class Commitments:
    """Of the rollouts of one slot, by (group, sample). An `engine.base.StateSink`."""

    def __init__(self, scheme: Scheme, draw_seed: bytes) -> None:
        """
        Args:
            draw_seed: of the lease, 32 bytes.
        """
        self._scheme, self._draw_seed = scheme, draw_seed
        self._open: dict[tuple[int, int], _Open] = {}

    @property
    def num_waiting(self) -> int:
        """States that are held, of all rollouts."""
        return sum(rollout.num_waiting for rollout in self._open.values())

    def add(self, group: int, sample: int, states_TD: Tensor) -> None:
        """The states that predicted the next tokens of this rollout, any float dtype and device.

        Raises:
            ValueError: as `proofs.scheme.build`.
        """
        rollout = self._open.setdefault((group, sample), _Open())
        rollout.waiting.append(states_TD)
        rollout.num_waiting += len(states_TD)
        whole = rollout.num_waiting // CHUNK_TOKENS * CHUNK_TOKENS
        states_WD = torch.cat(rollout.waiting) if len(rollout.waiting) > 1 else states_TD
        if whole:
            self._commit(rollout, group, sample, states_WD[:whole])
        # A copy, since a part of it would keep all of a larger tensor.
        rollout.waiting = [states_WD[whole:].clone()]
        rollout.num_waiting -= whole

    def proof(self, group: int, sample: int) -> bytes:
        """Of all states that were added, which are forgotten.

        Raises:
            KeyError: there are none.
        """
        rollout = self._open.pop((group, sample))
        if rollout.num_waiting:
            self._commit(rollout, group, sample, rollout.waiting[0])
        return bytes(rollout.proof)

    def _commit(self, rollout: _Open, group: int, sample: int, states_TD: Tensor) -> None:
        if self._scheme == "sketch":
            first, count = rollout.num_committed, num_chunks(len(states_TD))
            keys = torch.from_numpy(sketch.chunk_keys(self._draw_seed, group, sample, count, first=first))
            rollout.proof += sketch.sketch(states_TD, keys.to(states_TD.device)).cpu().numpy().tobytes()
            rollout.num_committed += count
        else:
            rollout.proof += toploc.build(states_TD)
