"""Which tasks a slot has: a keyed permutation of all tasks, so that nobody chooses and none comes twice too soon.

    position  = slot * groups_per_slot + group          counts the groups of an epoch
    task      = P_round(position mod num_tasks)         round = position div num_tasks has its own key

P is a Feistel network over the smallest even number of bits that holds n, with BLAKE2b as its round function; results
outside [0, n) are sent through again until they fall inside ("cycle walking": Black and Rogaway, Ciphers with arbitrary
finite domains, 2002), which keeps it a bijection. This module does not know what a task is.
"""

import hashlib
from collections.abc import Sequence

from farflung.slots.seeds import keyed_hash

NUM_FEISTEL_ROUNDS = 8
"""Four make a strong pseudorandom permutation on large domains (Luby and Rackoff, 1988); ours are small, hence twice as
many. Changing it changes every lease."""


class KeyedPermutation:
    """A bijection of [0, n) that only the holder of the key can foresee."""

    def __init__(self, key: bytes, n: int) -> None:
        """
        Args:
            key: at most 64 bytes.
            n: size of the domain, at least 1.
        """
        if n < 1:
            raise ValueError(f"a permutation of {n} things: there must be at least 1")
        self._key = key
        self._n = n
        self._half_bits = ((n - 1).bit_length() + 1) // 2

    def at(self, position: int) -> int:
        """Where `position` goes; expected cost below four passes of the network.

        Raises:
            IndexError: `position` is outside [0, n).
        """
        if not 0 <= position < self._n:
            raise IndexError(f"position {position} of a permutation of {self._n}")
        value = self._pass(position)
        while value >= self._n:
            value = self._pass(value)
        return value

    def _pass(self, value: int) -> int:
        mask = (1 << self._half_bits) - 1
        left, right = value >> self._half_bits, value & mask
        for number in range(NUM_FEISTEL_ROUNDS):
            left, right = right, left ^ (self._round(number, right) & mask)
        return left << self._half_bits | right

    def _round(self, number: int, half: int) -> int:
        message = number.to_bytes(1, "big") + half.to_bytes(8, "big")
        return int.from_bytes(hashlib.blake2b(message, digest_size=8, key=self._key).digest(), "big")


def slot_tasks(secret: bytes, slot: int, groups_per_slot: int, num_tasks: int) -> tuple[int, ...]:
    """Task index of each group of a slot; over successive slots no task comes twice before all came once.

    Raises:
        ValueError: a count is below 1 or the slot is negative.
    """
    return _draw(secret, "farflung/slot-tasks/1", slot, groups_per_slot, num_tasks)


def slot_target_lengths(
    secret: bytes, slot: int, groups_per_slot: int, target_lengths: Sequence[int]
) -> tuple[int, ...]:
    """Target length of each group of a slot, each as often as the others; zeros where the pool asks for none."""
    if not target_lengths:
        return (0,) * groups_per_slot
    chosen = _draw(secret, "farflung/slot-target-lengths/1", slot, groups_per_slot, len(target_lengths))
    return tuple(target_lengths[index] for index in chosen)


def _draw(secret: bytes, domain: str, slot: int, groups_per_slot: int, n: int) -> tuple[int, ...]:
    if slot < 0 or groups_per_slot < 1 or n < 1:
        raise ValueError(f"slot {slot} of {groups_per_slot} groups over {n} choices: slots count from 0, others from 1")
    start = slot * groups_per_slot
    return tuple(
        KeyedPermutation(keyed_hash(secret, domain, position // n), n).at(position % n)
        for position in range(start, start + groups_per_slot)
    )
