"""What must hold of every run whatever happened to its processes, read from what it left behind.

The coordinator's event log is the witness: it is replayed with every assertion of the ledger, and then compared with
the batch records, the rollout files, metrics.jsonl and summary.json.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from farflung.cli.report.summary import Summary
from farflung.cli.run_folder import RunFolder
from farflung.coordinator.journal import JournalRecord, PoolOpened, Published, decode
from farflung.coordinator.pool_state import PoolState
from farflung.rl.ranges import RangeSet
from farflung.slots.events import Submitted
from farflung.slots.ledger import SlotForgotten
from farflung.slots.lifecycle import Slot
from farflung.state.event_log import SqlEventLog
from farflung.store.object_store import ObjectStore
from farflung.telemetry.metrics import MetricsRow, read_metrics
from farflung.trainer.checkpoint import Checkpoints
from farflung.trainer.service import CHECKPOINTS_FOLDER
from farflung.wire.batch import BatchItem, BatchRecord
from farflung.wire.canonical import sha256_hex
from farflung.wire.manifest import Publication
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import read_rollouts
from farflung.wire.submission import Submission
from farflung.wire.verdict import SlotState


@dataclass(frozen=True, kw_only=True)
class History:
    """One run by its event log."""

    rules: PoolSpec
    publications: tuple[Publication, ...]
    slots: dict[int, Slot]
    """Every slot as it ended, or as it is now."""
    submitted: tuple[Submission, ...]
    """In the order of their receipts."""
    drops: Counter[str]
    """Reason -> groups that were not trained on."""

    @property
    def batches(self) -> list[BatchRecord]:
        return [publication.batch for publication in self.publications if publication.batch is not None]

    @property
    def items(self) -> list[tuple[int, BatchItem]]:
        """(version that the batch made, item)."""
        return [(batch.policy_version, item) for batch in self.batches for item in batch.items]

    @property
    def accepted(self) -> list[Slot]:
        return [slot for slot in self.slots.values() if slot.state is SlotState.ACCEPTED]


def audit(folder: RunFolder) -> History:
    """Assert everything that must hold of a run that is not running; returns its history for more questions."""
    history = read_history(folder)
    check_versions(history)
    check_batches(history)
    check_slots(history)
    num_tokens_trained = check_files(history, folder)
    check_checkpoint(history, folder, num_tokens_trained)
    if folder.summary.exists():
        check_summary(history, folder, num_tokens_trained)
    return history


def read_history(folder: RunFolder) -> History:
    """Replay the event log; the ledger's own invariants are asserted after every entry."""
    log = SqlEventLog(f"sqlite:///{folder.database}")
    try:
        opened, *records = [decode(entry) for entry in log.replay()]
    finally:
        log.close()
    assert isinstance(opened, PoolOpened), "these runs are too short for a snapshot"
    state = PoolState(opened)
    slots: list[Slot] = []
    for record in records:
        slots += [found.slot for found in state.apply(record) if isinstance(found, SlotForgotten)]
        state.ledger.validate()
    slots += state.ledger.table.slots()
    assert sorted(slot.slot for slot in slots) == list(range(state.ledger.table.next_slot)), "a slot is lost or double"
    return History(
        rules=state.rules,
        publications=tuple(record.publication for record in records if isinstance(record, Published)),
        slots={slot.slot: slot for slot in slots},
        submitted=tuple(record.submission for record in records if isinstance(record, Submitted)),
        drops=_drops(state.rules, slots, records),
    )


def check_versions(history: History) -> None:
    """Consecutive, each manifest and each batch record with the digest of the one before."""
    assert [found.manifest.policy_version for found in history.publications] == list(range(len(history.publications)))
    manifest_digest = batch_digest = ""
    for found in history.publications:
        assert found.manifest.previous_digest == manifest_digest
        manifest_digest = found.manifest.digest()
        if found.manifest.policy_version == 0:
            assert found.batch is None
            continue
        assert found.batch is not None, "a version that no batch made"
        assert found.batch.policy_version == found.manifest.policy_version
        assert found.batch.previous_digest == batch_digest
        batch_digest = found.batch.digest()


def check_batches(history: History) -> None:
    """Only accepted submissions, each at most once, none too old, and every batch full."""
    rules = history.rules
    taken = [item.slot for _, item in history.items]
    assert len(taken) == len(set(taken)), "a slot was trained on twice"
    assert len({item.file_digest for _, item in history.items}) == len(taken), "a rollout file was trained on twice"
    for version, item in history.items:
        slot = history.slots[item.slot]
        assert slot.state is SlotState.ACCEPTED
        assert slot.submission is not None
        assert item.submission_digest == slot.submission.digest()
        assert item.policy_version == slot.policy_version
        assert 0 <= version - 1 - item.policy_version <= rules.max_staleness, f"slot {item.slot} was stale"
    for batch in history.batches:
        assert len(batch.items) * rules.groups_per_slot == rules.groups_per_batch
        assert not {drop.slot for drop in batch.drops} & set(taken), "a slot was dropped and trained on"


def check_slots(history: History) -> None:
    """Every slot is open or in exactly one final state, and what was accepted is trained on, dropped or waiting."""
    taken = {item.slot for _, item in history.items}
    for slot in history.slots.values():
        assert slot.state.is_final == (slot.sequence is not None)
        if slot.state.is_final and slot.state is not SlotState.ACCEPTED:
            assert slot.reason, f"slot {slot.slot} is {slot.state} without a reason"
    for slot in history.accepted:
        is_dropped = slot.is_spent and bool(slot.reason)
        assert [slot.slot in taken, is_dropped, slot.is_ready].count(True) == 1, f"accepted slot {slot.slot} is lost"


def check_files(history: History, folder: RunFolder) -> int:
    """Every receipted file is there, byte for byte; returns the completion tokens of groups that were trained on."""
    store = ObjectStore(str(folder.store))
    for submission in history.submitted:
        data = store.get(submission.file_key, max_bytes=history.rules.max_file_bytes)
        assert sha256_hex(data) == submission.file_digest, f"the file of slot {submission.slot} has changed"
    num_tokens = 0
    for _, item in history.items:
        trained = history.slots[item.slot].submission
        assert trained is not None
        rollouts = _rollouts(store, trained, history.rules)
        assert {rollout.policy_version for rollout in rollouts} == {item.policy_version}
        assert sum(len(rollout.completion_tokens) for rollout in rollouts) == trained.num_tokens
        num_tokens += sum(
            len(rollout.completion_tokens) for rollout in rollouts if rollout.group in item.groups_trained
        )
    return num_tokens


def check_checkpoint(history: History, folder: RunFolder, num_tokens_trained: int) -> None:
    """The trainer's own account, where it has the newest version: position in the data, counters, drops."""
    found = Checkpoints(folder.root / CHECKPOINTS_FOLDER, keep=1).load_newest()
    newest = history.publications[-1]
    if found is None or found.publication != newest:
        return
    progress, buffer = found.progress, found.buffer_snapshot
    assert progress.optimizer_step == newest.manifest.optimizer_step
    assert progress.tokens_trained == num_tokens_trained
    assert sum(progress.dropped_groups.values()) == _without_gradient(history.batches, history.rules)
    seen = RangeSet.from_pairs(buffer["seen"])
    taken = {item.slot for _, item in history.items}
    assert all(slot in seen for slot in taken), "the trainer would take a slot again"
    assert buffer["counts"].get("trained", 0) == len(taken)
    assert {slot for slot, _ in buffer["drops"]}.isdisjoint(taken)
    for version, pairs in buffer["trained"]:
        slots = [item.slot for made, item in history.items if made == version]
        assert pairs == RangeSet(slots).pairs(), f"version {version} was trained on other slots"


def check_summary(history: History, folder: RunFolder, num_tokens_trained: int) -> None:
    """summary.json and metrics.jsonl tell the same story as the event log."""
    summary = json.loads(folder.summary.read_text())
    assert list(summary) == [field.name for field in fields(Summary)]
    rows = read_metrics(folder.metrics)
    train, evals = _by_version(rows, "train"), _by_version(rows, "eval")
    newest = history.publications[-1].manifest
    assert list(train) == list(range(1, newest.policy_version + 1)), "metrics.jsonl lacks versions"
    assert summary["versions"] == newest.policy_version
    assert summary["optimizer_steps"] == newest.optimizer_step
    assert summary["initial_accuracy"] == evals[0]["accuracy"]
    assert summary["final_accuracy"] == evals[max(evals)]["accuracy"]
    assert summary["eval_tasks"] == evals[0]["num_tasks"]
    assert summary["tokens_trained"] == num_tokens_trained
    _check_staleness(history, train, summary["staleness_mean"], summary["staleness_max"])
    assert summary["tokens_generated"] == sum(submission.num_tokens for submission in history.submitted)
    assert summary["tokens_accepted"] == sum(slot.submission.num_tokens for slot in history.accepted if slot.submission)
    assert 0 <= summary["trainer_idle_ratio"] <= 1
    assert 0 <= summary["worker_idle_ratio"] <= 1
    assert summary["cpu_s"] > 0
    assert summary["wall_s"] > 0
    assert re.fullmatch("[0-9a-f]{64}", summary["config_digest"])
    assert summary["drops"] == history.drops


def _check_staleness(history: History, train: dict[int, MetricsRow], mean: float, largest: int) -> None:
    group_size, groups_per_slot = history.rules.group_size, history.rules.groups_per_slot
    counts: Counter[int] = Counter()
    for version, item in history.items:
        counts[version - 1 - item.policy_version] += group_size * groups_per_slot
    told: Counter[int] = Counter()
    for row in train.values():
        told.update({int(staleness): number for staleness, number in row["staleness/histogram"].items()})
    assert told == counts
    assert largest == max(counts)
    assert abs(mean - sum(staleness * number for staleness, number in counts.items()) / counts.total()) < 1e-9


def _drops(rules: PoolSpec, slots: Sequence[Slot], records: Iterable[JournalRecord]) -> Counter[str]:
    """Groups without gradient by the batch records, and all groups of slots that ended with a reason."""
    drops: Counter[str] = Counter()
    published = [record.publication.batch for record in records if isinstance(record, Published)]
    drops["no_signal"] += _without_gradient([batch for batch in published if batch is not None], rules)
    for slot in slots:
        if slot.is_final and slot.reason:
            drops[slot.reason] += rules.groups_per_slot
    return +drops


def _without_gradient(batches: Iterable[BatchRecord], rules: PoolSpec) -> int:
    """Groups of slots that were trained on, which carried no gradient."""
    return sum(rules.groups_per_slot - len(item.groups_trained) for batch in batches for item in batch.items)


def _rollouts(store: ObjectStore, submission: Submission, rules: PoolSpec) -> list[Rollout]:
    return read_rollouts(
        store.get(submission.file_key, max_bytes=rules.max_file_bytes),
        pool_digest=rules.digest(),
        max_rollouts=rules.groups_per_slot * rules.group_size,
        max_tokens_per_list=max(rules.max_prompt_tokens, rules.max_completion_tokens),
    )


def _by_version(rows: Iterable[MetricsRow], kind: str) -> dict[int, MetricsRow]:
    """The last row of each version, ascending."""
    found = {int(row["version"]): row for row in rows if row["kind"] == kind}
    return {version: found[version] for version in sorted(found)}
