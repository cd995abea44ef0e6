"""What a local run counts."""

from types import SimpleNamespace
from typing import Any

from farflung.local.tally import Tally


def sampled(slot: int, **faults: int) -> Any:
    return SimpleNamespace(slot=slot, faults=faults, heartbeat=SimpleNamespace(node="sampler-1"))


def test_a_slot_that_is_sampled_again_after_a_kill_counts_once() -> None:
    ended: set[int] = set()
    tally = Tally("sums", has_ended=ended.__contains__)
    for slot in (0, 1, 2):
        tally.sampled(sampled(slot, ValueError=slot), 10 + slot)
    ended |= {0, 1}
    restored = Tally("sums", has_ended=ended.__contains__)
    restored.restore(tally.snapshot())
    assert (restored.slots, restored.tokens, restored.faults) == ({"accepted": 2}, 21, {"sums: ValueError": 1})
    restored.sampled(sampled(2, ValueError=2), 12)
    assert (restored.slots, restored.tokens, restored.faults) == (tally.slots, tally.tokens, tally.faults)
    assert tally.slots == {"accepted": 3}
