"""The buffer against a model of it that remembers every slot's state, under any sequence of events."""

import json
from enum import Enum

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from farflung.rl.buffer import Admission, BufferParams, ExperienceBuffer
from farflung.rl.types import Batch, RolloutGroup
from farflung.wire.rollout import Rollout, StopReason

TOKENS = np.array([1], dtype=np.int32)
LOGPROBS = np.array([-1.0], dtype=np.float32)


class State(Enum):
    OUT = "out"
    WAITING = "waiting"
    TAKEN = "taken"
    TRAINED = "trained"
    DROPPED = "dropped"
    CLOSED = "closed"


def counts(group: RolloutGroup) -> bool:
    """Two of three groups."""
    return (group.slot + group.group) % 3 > 0


def groups(slot: int, version: int, count: int) -> tuple[RolloutGroup, ...]:
    rollout = Rollout(
        env="toy",
        task_id="0",
        group=0,
        sample=0,
        prompt_tokens=TOKENS,
        completion_tokens=TOKENS,
        logprobs=LOGPROBS,
        stop_reason=StopReason.EOS,
        policy_version=version,
    )
    return tuple(
        RolloutGroup(slot=slot, group=number, task_id="0", rollouts=(rollout,), rewards=(1.0,), correct=(1.0,))
        for number in range(count)
    )


class BufferMachine(RuleBasedStateMachine):
    @initialize(
        groups_per_batch=st.integers(1, 4),
        max_staleness=st.integers(0, 3),
        max_slots=st.integers(1, 8),
        window_slots=st.one_of(st.none(), st.integers(0, 5)),
        max_unreported=st.one_of(st.none(), st.integers(0, 5)),
        max_slots_per_batch=st.one_of(st.none(), st.integers(1, 6)),
    )
    def start(
        self,
        groups_per_batch: int,
        max_staleness: int,
        max_slots: int,
        window_slots: int | None,
        max_unreported: int | None,
        max_slots_per_batch: int | None,
    ) -> None:
        self.params = BufferParams(
            groups_per_batch=groups_per_batch,
            max_staleness=max_staleness,
            max_slots=max_slots,
            window_slots=window_slots,
            max_unreported=max_unreported,
            max_slots_per_batch=max_slots_per_batch,
        )
        self.buffer = ExperienceBuffer(self.params, counts)
        self.version = 0
        self.state: list[State] = []
        self.sampled_with: list[int] = []
        self.num_groups: list[int] = []
        self.given_up: set[int] = set()
        self.rolled_back: set[int] = set()
        self.out: dict[int, Batch] = {}
        self.reported: list[int] = []
        """Slots whose drop stands in a released batch."""

    # -- the model --------------------------------------------------------------------------------------------------

    def slots(self, *states: State) -> list[int]:
        return [slot for slot, state in enumerate(self.state) if state in states]

    def is_in_turn(self, slot: int) -> bool:
        admitted = self.slots(State.WAITING, State.TAKEN, State.TRAINED, State.DROPPED)
        return all(
            self.params.window_slots is not None
            and sum(other > missing for other in admitted if other not in self.given_up) >= self.params.window_slots
            for missing in self.slots(State.OUT)
            if missing < slot
        )

    def reported_when_released(self) -> list[int]:
        return [drop.slot for batch in self.out.values() for drop in batch.drops]

    def num_counted(self, slot: int) -> int:
        return sum(counts(group) for group in groups(slot, 0, self.num_groups[slot]))

    def unreported(self) -> set[int]:
        """Given up or rolled back, and in no batch yet."""
        return (self.given_up | self.rolled_back) - {*self.reported, *self.reported_when_released()}

    def expected_batch(self) -> list[int] | None:
        taken: list[int] = []
        bound = self.params.max_slots_per_batch
        for slot in self.slots(State.WAITING):
            if not self.is_in_turn(slot):
                return None
            taken.append(slot)
            if sum(map(self.num_counted, taken)) >= self.params.groups_per_batch:
                return taken
            if bound is not None and len(taken) + len(self.unreported()) >= bound:
                return taken
        return None

    # -- events -----------------------------------------------------------------------------------------------------

    @rule(num_groups=st.lists(st.integers(1, 3), min_size=1, max_size=4))
    def lease(self, num_groups: list[int]) -> None:
        self.state += [State.OUT] * len(num_groups)
        self.sampled_with += [self.version] * len(num_groups)
        self.num_groups += num_groups

    def offer(self, slot: int) -> Admission:
        version, count = self.sampled_with[slot], self.num_groups[slot]
        return self.buffer.admit(slot, version, groups(slot, version, count), num_tokens=count, node="a")

    @precondition(lambda self: self.slots(State.OUT))
    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(self.slots(State.OUT)))
        has_place = len(self.slots(State.WAITING, State.TAKEN)) < self.params.max_slots
        trainer_is_idle = not self.out and self.expected_batch() is None
        admission = self.offer(slot)
        assert admission is (Admission.ADMITTED if has_place or trainer_is_idle else Admission.FULL)
        if admission is Admission.ADMITTED:
            self.state[slot] = State.WAITING

    @precondition(lambda self: self.slots(State.OUT))
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(self.slots(State.OUT)))
        assert self.buffer.close(slot, "rejected")
        self.state[slot] = State.CLOSED

    @precondition(lambda self: self.slots(State.OUT))
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(self.slots(State.OUT)))
        assert self.buffer.give_up(slot, "unreadable")
        self.state[slot] = State.DROPPED
        self.given_up.add(slot)

    @precondition(lambda self: len(self.slots(State.OUT)) < len(self.state))
    @rule(data=st.data(), event=st.sampled_from(["admit", "close", "give_up"]))
    def repeat(self, data: st.DataObject, event: str) -> None:
        slot = data.draw(st.sampled_from([slot for slot, state in enumerate(self.state) if state is not State.OUT]))
        if event == "close":
            assert not self.buffer.close(slot, "rejected")
        elif event == "give_up":
            assert not self.buffer.give_up(slot, "unreadable")
        else:
            assert self.offer(slot) is Admission.DUPLICATE

    @rule()
    def take(self) -> None:
        for slot in self.slots(State.WAITING):
            if self.version - self.sampled_with[slot] > self.params.max_staleness:
                self.state[slot] = State.DROPPED
        expected = self.expected_batch()
        max_unreported = self.params.max_unreported
        if expected is None and max_unreported is not None:
            expected = [] if len(self.unreported()) > max_unreported else None
        batch = self.buffer.take(self.version)
        assert (None if batch is None else list(batch.slots)) == expected
        if batch is None:
            return
        assert batch.staleness.max <= self.params.max_staleness
        for slot in batch.slots:
            self.state[slot] = State.TAKEN
        self.out[batch.batch_id] = batch
        self.version += 1

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        batch = self.out.pop(data.draw(st.sampled_from(sorted(self.out))))
        self.buffer.release(batch.batch_id)
        for slot in batch.slots:
            self.state[slot] = State.TRAINED
        self.reported += [drop.slot for drop in batch.drops]
        trained_in = self.buffer.trained_in(batch.policy_version + 1)
        assert [slot for start, stop in trained_in for slot in range(start, stop)] == list(batch.slots)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        batch = self.out.pop(data.draw(st.sampled_from(sorted(self.out))))
        self.buffer.discard(batch.batch_id, "rolled_back")
        self.rolled_back |= set(batch.slots)
        for slot in batch.slots:
            self.state[slot] = State.DROPPED

    @rule()
    def fall_behind(self) -> None:
        """The trainer goes on without us, e.g. a batch taken before a restart is published."""
        self.version += 1

    @rule()
    def restart(self) -> None:
        snapshot = json.loads(json.dumps(self.buffer.snapshot()))
        self.buffer = ExperienceBuffer.restore(self.params, snapshot, counts)
        for slot in self.slots(State.WAITING, State.TAKEN):
            self.state[slot] = State.OUT
        self.out.clear()

    # -- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def every_slot_is_where_the_model_says(self) -> None:
        assert list(self.buffer.pending_slots()) == self.slots(State.WAITING, State.TAKEN)
        seen = [self.buffer.has_seen(slot) for slot in range(len(self.state))]
        assert seen == [state is not State.OUT for state in self.state]
        metrics = self.buffer.metrics()
        dropped = sum(count for name, count in metrics.items() if name.startswith("buffer/dropped/"))
        counts = {
            State.WAITING: metrics["buffer/waiting_slots"],
            State.TAKEN: metrics["buffer/taken_slots"],
            State.TRAINED: metrics.get("buffer/trained", 0),
            State.DROPPED: dropped,
            State.CLOSED: metrics.get("buffer/closed/rejected", 0),
        }
        assert counts == {state: len(self.slots(state)) for state in counts}
        assert metrics.get("buffer/admitted", 0) == sum(counts.values()) - counts[State.CLOSED]

    @invariant()
    def every_drop_is_reported_once(self) -> None:
        unreported = [slot for slot, _ in self.buffer.snapshot()["drops"]]
        assert sorted(self.reported + unreported) == self.slots(State.DROPPED)

    @invariant()
    def memory_is_bounded(self) -> None:
        params = self.params
        unsettled = self.slots(State.OUT, State.WAITING, State.TAKEN)
        all_count = all(self.num_counted(slot) == self.num_groups[slot] for slot in unsettled)
        if params.window_slots is not None and all_count:  # else the pool bounds what is out
            assert self.buffer.num_occupied <= max(params.max_slots, params.window_slots + params.groups_per_batch)
        assert len(self.buffer.snapshot()["seen"]) <= len(unsettled) + 1


BufferMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=50)
TestBuffer = BufferMachine.TestCase
