import doctest
import json
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rl import buffer as buffer_module
from farflung.rl.buffer import Admission, BufferParams, ExperienceBuffer
from farflung.rl.types import RolloutGroup
from farflung.wire.batch import SlotDrop
from farflung.wire.rollout import Rollout, StopReason

PARAMS = BufferParams(groups_per_batch=2, max_staleness=2, max_slots=8, window_slots=3)
IN_ORDER = replace(PARAMS, window_slots=None)


def groups(slot: int, version: int, count: int = 1) -> tuple[RolloutGroup, ...]:
    rollout = Rollout(
        env="toy",
        task_id="0",
        group=0,
        sample=0,
        prompt_tokens=np.array([1], dtype=np.int32),
        completion_tokens=np.array([2, 3], dtype=np.int32),
        logprobs=np.array([-0.1, -0.2], dtype=np.float32),
        stop_reason=StopReason.EOS,
        policy_version=version,
    )
    return tuple(
        RolloutGroup(slot=slot, group=number, task_id="0", rollouts=(rollout,) * 2, rewards=(1.0, 0.0), correct=(1, 0))
        for number in range(count)
    )


def offer(buffer: ExperienceBuffer, slot: int, version: int = 0, count: int = 1) -> Admission:
    return buffer.admit(slot, version, groups(slot, version, count), num_tokens=4 * count, node="a")


def a_buffer(slots: Iterable[int], params: BufferParams = PARAMS, version: int = 0) -> ExperienceBuffer:
    buffer = ExperienceBuffer(params)
    for slot in slots:
        assert offer(buffer, slot, version) is Admission.ADMITTED
    return buffer


def take_slots(buffer: ExperienceBuffer, version: int = 0) -> tuple[int, ...] | None:
    batch = buffer.take(version)
    return None if batch is None else batch.slots


def test_the_examples_in_the_docstring_run() -> None:
    results = doctest.testmod(buffer_module, extraglobs={"groups": groups})
    assert results.failed == 0
    assert results.attempted > 0


# -- order --------------------------------------------------------------------------------------------------------


def test_slots_are_taken_in_slot_order_whatever_the_order_of_arrival() -> None:
    buffer = a_buffer([3, 1, 0, 2])
    assert take_slots(buffer) == (0, 1)
    assert take_slots(buffer) == (2, 3)


def test_a_missing_slot_is_waited_for_until_enough_later_ones_are_admitted() -> None:
    buffer = a_buffer([0, 2, 3])
    assert buffer.take(0) is None
    offer(buffer, 4)
    assert take_slots(buffer) == (0, 2)


def test_a_passed_over_slot_is_not_waited_for_again_and_taken_when_it_comes() -> None:
    buffer = a_buffer([1, 2, 3, 4])
    assert take_slots(buffer) == (1, 2)
    assert take_slots(buffer) == (3, 4)
    for slot in (6, 0, 5):
        offer(buffer, slot)
    assert take_slots(buffer) == (0, 5)


def test_a_late_slot_that_is_too_old_is_dropped_with_a_reason() -> None:
    buffer = a_buffer([1, 2, 3])
    assert take_slots(buffer) == (1, 2)
    offer(buffer, 0, version=0)
    assert buffer.take(3) is None
    assert buffer.metrics()["buffer/dropped/stale"] == 2  # 0 and 3
    assert buffer.pending_slots() == (1, 2)


def test_a_closed_slot_is_not_waited_for() -> None:
    buffer = a_buffer([1, 2])
    assert buffer.take(0) is None
    assert buffer.close(0, "rejected")
    assert take_slots(buffer) == (1, 2)


def test_a_slot_that_is_given_up_is_not_waited_for_and_reported_with_the_next_batch() -> None:
    buffer = a_buffer([1, 2])
    assert buffer.give_up(0, "unreadable")
    assert not buffer.give_up(0, "unreadable")
    batch = buffer.take(0)
    assert batch is not None
    assert batch.slots == (1, 2)
    assert [(drop.slot, drop.reason) for drop in batch.drops] == [(0, "unreadable")]
    assert (buffer.metrics()["buffer/admitted"], buffer.metrics()["buffer/dropped/unreadable"]) == (3, 1)


def test_without_a_window_every_slot_is_waited_for() -> None:
    buffer = a_buffer([0, *range(2, 30)], replace(IN_ORDER, max_slots=4))
    assert buffer.take(0) is None
    offer(buffer, 1)
    assert take_slots(buffer) == (0, 1)


@given(st.permutations(list(range(12))), st.sets(st.integers(0, 11), max_size=4))
def test_without_a_window_batches_do_not_depend_on_arrival(arrival: list[int], closed: set[int]) -> None:
    buffer = ExperienceBuffer(IN_ORDER)
    batches = []
    for slot in arrival:
        if slot in closed:
            buffer.close(slot, "expired")
        else:
            while offer(buffer, slot) is Admission.FULL:
                buffer.release(0)
        while (batch := buffer.take(0)) is not None:
            batches.append(batch.slots)
            buffer.release(batch.batch_id)
    accepted = [slot for slot in range(12) if slot not in closed]
    assert batches == [tuple(accepted[at : at + 2]) for at in range(0, len(accepted) - 1, 2)]


# -- size and staleness of a batch ---------------------------------------------------------------------------------


def test_whole_slots_are_taken_until_the_batch_has_its_groups() -> None:
    buffer = ExperienceBuffer(replace(PARAMS, groups_per_batch=4))
    for slot in range(3):
        offer(buffer, slot, count=3)
    batch = buffer.take(0)
    assert batch is not None
    assert batch.slots == (0, 1)
    assert (batch.num_groups, len(batch.groups), batch.num_tokens) == (6, 6, 24)
    assert buffer.take(0) is None
    assert buffer.pending_slots() == (0, 1, 2)


def test_staleness_is_measured_at_the_moment_of_taking() -> None:
    buffer = ExperienceBuffer(PARAMS)
    for slot, version in enumerate((0, 1, 3, 3)):
        offer(buffer, slot, version)
    batch = buffer.take(3)  # version 0 is 3 versions behind, the bound is 2
    assert batch is not None
    assert batch.slots == (1, 2)
    assert batch.drops == (SlotDrop(slot=0, reason="stale"),)
    assert batch.staleness.counts == {0: 2, 2: 2}  # two rollouts a group


def test_a_slot_from_a_version_that_the_trainer_lost_is_dropped() -> None:
    buffer = a_buffer([0], version=5)
    assert buffer.take(4) is None
    assert buffer.metrics()["buffer/dropped/future_version"] == 1


def test_synchronous_mode_takes_only_the_current_version() -> None:
    buffer = ExperienceBuffer(replace(PARAMS, max_staleness=0))
    for slot, version in enumerate((0, 1, 1)):
        offer(buffer, slot, version)
    assert take_slots(buffer, 1) == (1, 2)


# -- the ledger -----------------------------------------------------------------------------------------------------


def test_an_already_seen_slot_is_refused_and_counted() -> None:
    buffer = a_buffer([0, 1, 2])
    buffer.close(3, "rejected")
    batch = buffer.take(0)
    assert batch is not None
    buffer.release(batch.batch_id)
    before = buffer.metrics()
    assert [offer(buffer, slot) for slot in range(4)] == [Admission.DUPLICATE] * 4  # trained, trained, waiting, closed
    assert [buffer.close(slot, "expired") for slot in range(4)] == [False] * 4
    assert buffer.metrics() == {**before, "buffer/duplicates": 8}
    assert [buffer.has_seen(slot) for slot in range(5)] == [True] * 4 + [False]


def test_released_slots_are_trained_in_the_next_version() -> None:
    buffer = a_buffer([0, 1, 2, 3])
    first, second = buffer.take(0), buffer.take(1)
    assert first is not None
    assert second is not None
    assert buffer.pending_slots() == (0, 1, 2, 3)
    buffer.release(second.batch_id)
    buffer.release(first.batch_id)
    assert (buffer.trained_in(1), buffer.trained_in(2), buffer.trained_in(3)) == ([[0, 2]], [[2, 4]], [])
    assert buffer.pending_slots() == ()
    assert buffer.metrics()["buffer/trained"] == 4
    assert buffer.metrics()["buffer/trained_tokens"] == 16


def test_discarded_slots_are_dropped_and_reported_with_the_next_batch() -> None:
    buffer = ExperienceBuffer(PARAMS)
    for slot, version in enumerate((0, 3, 3, 3, 3)):
        offer(buffer, slot, version)
    rolled_back = buffer.take(3)
    assert rolled_back is not None
    buffer.discard(rolled_back.batch_id, "non_finite")
    batch = buffer.take(3)
    assert batch is not None
    assert batch.slots == (3, 4)
    assert [(drop.slot, drop.reason) for drop in batch.drops] == [(0, "stale"), (1, "non_finite"), (2, "non_finite")]
    assert buffer.metrics()["buffer/dropped/non_finite"] == 2


def test_an_empty_batch_reports_given_up_slots_that_would_starve_the_pool() -> None:
    buffer = a_buffer([0, 1], replace(PARAMS, max_unreported=2))
    rolled_back = buffer.take(0)
    assert rolled_back is not None
    buffer.discard(rolled_back.batch_id, "non_finite")
    assert buffer.take(0) is None
    buffer.give_up(2, "unreadable")
    batch = buffer.take(0)
    assert batch is not None
    assert (batch.entries, batch.num_groups, batch.num_tokens, batch.staleness.total) == ((), 0, 0, 0)
    assert [drop.slot for drop in batch.drops] == [0, 1, 2]
    buffer.release(batch.batch_id)
    assert buffer.take(1) is None
    assert (buffer.trained_in(1), buffer.metrics()["buffer/trained"]) == ([], 0)


def test_a_complete_batch_comes_before_an_empty_one() -> None:
    buffer = a_buffer([1, 2], replace(PARAMS, max_unreported=0))
    buffer.give_up(0, "unreadable")
    assert take_slots(buffer) == (1, 2)


def test_stale_slots_alone_never_make_an_empty_batch() -> None:
    buffer = a_buffer([0], replace(PARAMS, max_unreported=0))
    assert buffer.take(3) is None
    assert buffer.metrics()["buffer/dropped/stale"] == 1


def test_a_batch_is_given_back_once() -> None:
    buffer = a_buffer([0, 1])
    batch = buffer.take(0)
    assert batch is not None
    buffer.release(batch.batch_id)
    with pytest.raises(ValueError, match="batch 0 is not out"):
        buffer.release(batch.batch_id)
    with pytest.raises(ValueError, match="batch 0 is not out"):
        buffer.discard(batch.batch_id, "late")


def test_only_the_latest_versions_are_remembered() -> None:
    buffer = ExperienceBuffer(replace(PARAMS, max_history=2))
    for version in range(4):
        offer(buffer, 2 * version, version)
        offer(buffer, 2 * version + 1, version)
        batch = buffer.take(version)
        assert batch is not None
        buffer.release(batch.batch_id)
    assert [buffer.trained_in(version) for version in range(1, 5)] == [[], [], [[4, 6]], [[6, 8]]]


def test_metrics_show_what_is_inside() -> None:
    buffer = a_buffer([0, 1, 2, 4])
    buffer.take(0)
    assert buffer.metrics() == {
        "buffer/waiting_slots": 2,
        "buffer/waiting_groups": 2,
        "buffer/waiting_tokens": 8,
        "buffer/taken_slots": 2,
        "buffer/cursor": 3,
        "buffer/admitted": 4,
    }


# -- places ---------------------------------------------------------------------------------------------------------


def test_a_full_buffer_refuses_until_a_batch_is_given_back() -> None:
    buffer = a_buffer(range(8))
    assert offer(buffer, 8) is Admission.FULL
    assert not buffer.has_seen(8)
    batch = buffer.take(0)
    assert batch is not None
    assert offer(buffer, 8) is Admission.FULL  # a taken slot keeps its place
    buffer.release(batch.batch_id)
    assert offer(buffer, 8) is Admission.ADMITTED


def test_a_full_buffer_does_not_block_what_the_next_batch_needs() -> None:
    """A reader that offers slots one by one would wait for ever: nobody but it can bring slot 0."""
    buffer = a_buffer([3, 2, 1, 0], replace(IN_ORDER, max_slots=2))
    assert offer(buffer, 4) is Admission.FULL
    assert take_slots(buffer) == (0, 1)


def test_a_full_buffer_refuses_while_its_only_batch_is_out() -> None:
    buffer = a_buffer([0, 1], replace(PARAMS, max_slots=2))
    batch = buffer.take(0)
    assert batch is not None
    assert offer(buffer, 2) is Admission.FULL
    buffer.discard(batch.batch_id, "non_finite")
    assert offer(buffer, 2) is Admission.ADMITTED


def test_stale_slots_leave_their_places() -> None:
    buffer = a_buffer(range(8))
    assert buffer.take(3) is None
    assert buffer.num_occupied == 0


# -- checkpoint -----------------------------------------------------------------------------------------------------


def through_json(buffer: ExperienceBuffer) -> ExperienceBuffer:
    return ExperienceBuffer.restore(buffer.params, json.loads(json.dumps(buffer.snapshot())))


def test_a_restored_buffer_knows_what_was_trained_and_asks_again_for_what_was_inside() -> None:
    buffer = a_buffer([0, 1, 2, 3, 4, 6])
    buffer.close(5, "expired")
    first = buffer.take(0)
    assert first is not None
    buffer.release(first.batch_id)
    buffer.take(1)
    restored = through_json(buffer)
    assert [slot for slot in range(8) if restored.has_seen(slot)] == [0, 1, 5]
    assert (restored.cursor, restored.pending_slots(), restored.trained_in(1)) == (2, (), [[0, 2]])
    assert restored.metrics()["buffer/admitted"] == restored.metrics()["buffer/trained"] == 2
    assert [offer(restored, slot) for slot in (0, 2, 3)] == [Admission.DUPLICATE] + [Admission.ADMITTED] * 2
    second = restored.take(1)
    assert second is not None
    assert (second.slots, second.batch_id) == ((2, 3), 2)


def test_a_restored_buffer_reports_the_drops_of_batches_that_were_out() -> None:
    buffer = ExperienceBuffer(PARAMS)
    for slot, version in enumerate((0, 3, 3)):
        offer(buffer, slot, version)
    buffer.take(3)
    restored = through_json(buffer)
    for slot in (1, 2):
        offer(restored, slot, 3)
    batch = restored.take(3)
    assert batch is not None
    assert batch.drops == (SlotDrop(slot=0, reason="stale"),)


def test_a_restored_buffer_still_knows_which_slots_do_not_move_the_window() -> None:
    buffer = a_buffer([0, 1, 4], replace(PARAMS, groups_per_batch=1, window_slots=2))
    for slot in (2, 3):
        buffer.close(slot, "rejected")
    batch = buffer.take(0)
    assert batch is not None
    buffer.release(batch.batch_id)
    restored = through_json(buffer)  # 1 and 4 have to come again
    offer(restored, 4)
    assert restored.take(0) is None
    offer(restored, 5)
    assert take_slots(restored) == (4,)


def test_a_long_run_leaves_a_small_ledger() -> None:
    buffer = ExperienceBuffer(replace(PARAMS, max_history=2))
    for slot in range(0, 600, 3):
        offer(buffer, slot)
        buffer.close(slot + 1, "rejected")
        offer(buffer, slot + 2)
        batch = buffer.take(0)
        assert batch is not None
        buffer.release(batch.batch_id)
    snapshot = buffer.snapshot()
    assert snapshot["seen"] == [[0, 600]]
    assert snapshot["closed"] == []
    assert snapshot["drops"] == []


def test_another_snapshot_format_is_refused() -> None:
    snapshot = {**ExperienceBuffer(PARAMS).snapshot(), "format": 99}
    with pytest.raises(ValueError, match="format 99"):
        ExperienceBuffer.restore(PARAMS, snapshot)  # type: ignore[arg-type]


# -- bad arguments --------------------------------------------------------------------------------------------------


def test_a_slot_must_hold_its_own_groups() -> None:
    buffer = ExperienceBuffer(PARAMS)
    with pytest.raises(ValueError, match="no groups"):
        buffer.admit(0, 0, (), num_tokens=0, node="a")
    with pytest.raises(ValueError, match="holds a group of slot 1"):
        buffer.admit(0, 0, groups(1, 0), num_tokens=4, node="a")
    with pytest.raises(ValueError, match="slot 0 of version 1 holds a group of slot 0, version 0"):
        buffer.admit(0, 1, groups(0, 0), num_tokens=4, node="a")
    with pytest.raises(ValueError, match="-1 is negative"):
        buffer.admit(-1, 0, groups(-1, 0), num_tokens=4, node="a")
    assert buffer.metrics()["buffer/waiting_slots"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups_per_batch": 0}, "groups_per_batch is 0"),
        ({"max_staleness": -1}, "max_staleness is -1"),
        ({"max_slots": 0}, "max_slots is 0"),
        ({"max_history": 0}, "max_history is 0"),
        ({"window_slots": -1}, "window_slots is -1"),
        ({"max_unreported": -1}, "max_unreported is -1"),
    ],
)
def test_sizes_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PARAMS, **change)


FIXED = replace(PARAMS, groups_per_batch=2, slots_per_batch=2, max_slots=1)
"""Deterministic mode: version v is trained on slots 2 v and 2 v + 1."""


@given(order=st.permutations(range(6)))
def test_fixed_batches_do_not_depend_on_the_order_of_arrival(order: list[int]) -> None:
    buffer = ExperienceBuffer(FIXED)
    taken: list[tuple[int, ...]] = []
    for slot in order:
        assert offer(buffer, slot) is Admission.ADMITTED, "it never refuses"
        while (batch := buffer.take(len(taken))) is not None:
            taken.append(batch.slots)
            buffer.release(batch.batch_id)
    assert taken == [(0, 1), (2, 3), (4, 5)]


def test_a_fixed_batch_waits_for_its_own_slots_and_takes_no_others() -> None:
    buffer = a_buffer([0, 2, 3], FIXED)
    assert take_slots(buffer, 0) is None
    offer(buffer, 1)
    assert take_slots(buffer, 0) == (0, 1)


def test_a_refused_fixed_batch_makes_an_empty_version_and_the_next_batch_is_the_next_ones() -> None:
    buffer = a_buffer(range(4), FIXED)
    batch = buffer.take(0)
    assert batch is not None
    assert buffer.take(0) is None, "it is out"
    buffer.discard(batch.batch_id, "canary")
    report = buffer.take(0)
    assert report is not None
    assert (report.slots, [drop.slot for drop in report.drops]) == ((), [0, 1])
    buffer.release(report.batch_id)
    assert take_slots(buffer, 1) == (2, 3)


def test_a_fixed_batch_goes_on_after_a_restart_with_what_is_admitted_again() -> None:
    buffer = a_buffer(range(3), FIXED)
    batch = buffer.take(0)
    assert batch is not None
    buffer.release(batch.batch_id)
    again = ExperienceBuffer.restore(FIXED, buffer.snapshot())
    assert again.take(1) is None
    assert [offer(again, slot) for slot in (1, 2, 3)] == [Admission.DUPLICATE, Admission.ADMITTED, Admission.ADMITTED]
    assert take_slots(again, 1) == (2, 3)


# -- dynamic sampling ---------------------------------------------------------------------------------------------

FILLED = BufferParams(groups_per_batch=2, max_staleness=2, max_slots=20, window_slots=3, max_slots_per_batch=6)


def teaches(group: RolloutGroup) -> bool:
    return group.slot in (1, 4, 5)


def a_filling_buffer(slots: Iterable[int], params: BufferParams = FILLED) -> ExperienceBuffer:
    buffer = ExperienceBuffer(params, teaches)
    for slot in slots:
        offer(buffer, slot)
    return buffer


def test_a_batch_fills_until_enough_of_its_groups_count() -> None:
    buffer = a_filling_buffer(range(4))
    assert buffer.take(0) is None
    offer(buffer, 4)
    assert take_slots(buffer) == (0, 1, 2, 3, 4)


def test_a_batch_in_which_nothing_counts_is_taken_at_its_bound() -> None:
    buffer = a_filling_buffer(range(6, 11), replace(FILLED, window_slots=1))
    assert buffer.take(0) is None
    assert not buffer.is_full
    offer(buffer, 11)
    assert take_slots(buffer) == (6, 7, 8, 9, 10, 11)


@given(st.permutations(range(12)))
def test_what_a_filling_batch_takes_depends_on_slot_order_alone(arrival: list[int]) -> None:
    buffer = a_filling_buffer([], replace(FILLED, window_slots=None))
    taken = []
    for slot in arrival:
        offer(buffer, slot)
        while batch := buffer.take(0):
            taken.append(batch.slots)
            buffer.release(batch.batch_id)
    assert taken == [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9, 10)]


def test_slots_given_up_hold_places_and_count_towards_the_bound() -> None:
    buffer = a_filling_buffer(range(6, 9), replace(FILLED, window_slots=0))
    for slot in (2, 3):
        buffer.give_up(slot, "unreadable")
    assert buffer.take(0) is None
    offer(buffer, 9)
    batch = buffer.take(0)
    assert batch is not None
    assert (batch.slots, len(batch.drops)) == ((6, 7, 8, 9), 2)


def test_what_is_filling_is_dropped_when_it_becomes_stale() -> None:
    buffer = a_filling_buffer([0, 1, 2])
    assert buffer.take(3) is None
    assert buffer.metrics()["buffer/dropped/stale"] == 3
    for slot in (3, 4, 5):
        offer(buffer, slot, version=3)
    assert take_slots(buffer, 3) == (3, 4, 5)


def test_a_restored_buffer_counts_as_before() -> None:
    buffer = a_filling_buffer(range(5))
    batch = buffer.take(0)
    assert batch is not None
    buffer.release(batch.batch_id)
    again = ExperienceBuffer.restore(FILLED, buffer.snapshot(), teaches)
    for slot in (5, 6, 7, 8, 9):
        offer(again, slot)
    assert again.take(0) is None
    offer(again, 10)
    assert take_slots(again) == (5, 6, 7, 8, 9, 10)


def test_a_bound_of_no_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="max_slots_per_batch is 0"):
        replace(FILLED, max_slots_per_batch=0)


@pytest.mark.parametrize("seed", range(5))
def test_2000_offers_from_outside_pass_the_gate_and_none_is_lost_silently(seed: int) -> None:  # H3
    buffer = ExperienceBuffer(replace(FILLED, window_slots=0), lambda group: group.slot % 10 == 0)
    random = Random(seed)
    refused, taken, version = 0, 0, 0
    for slot in range(2000):
        sampled_with = max(0, version - random.randrange(5))
        refused += offer(buffer, slot, sampled_with) is Admission.FULL
        if random.random() < 0.2 and (batch := buffer.take(version)):
            assert all(0 <= version - entry.policy_version <= FILLED.max_staleness for entry in batch.entries)
            taken += len(batch.entries)
            if random.random() < 0.8:
                buffer.release(batch.batch_id)
            else:
                buffer.discard(batch.batch_id, "non_finite")
            version += 1
    figures = buffer.metrics()
    dropped = {name: count for name, count in figures.items() if name.startswith("buffer/dropped/")}
    assert figures["buffer/admitted"] + refused == 2000
    assert figures["buffer/admitted"] == figures["buffer/waiting_slots"] + figures["buffer/trained"] + sum(
        dropped.values()
    )
    assert dropped.keys() <= {"buffer/dropped/stale", "buffer/dropped/non_finite"}
    assert figures["buffer/trained"] + figures.get("buffer/dropped/non_finite", 0) == taken
    assert buffer.num_occupied <= FILLED.max_slots
