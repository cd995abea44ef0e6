"""`farflung rollouts publish|export RUN`: what a run sampled and validators accepted, for others to learn from.

    publish    a data set with a card: traces as Parquet, and the right ones as chats that `farflung sft` reads
    export     one Parquet file in INTELLECT-2's rollout schema

Rows are those of accepted submissions whose files are still in the store (`coordinator.keep_versions`); rewards are the
validators'.
"""

import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from farflung.api.routes import evidence_key
from farflung.cli.run_folder import RunFolder
from farflung.coordinator.journal import decode
from farflung.coordinator.pool_state import restore
from farflung.data.traces import Trace, write_card, write_chats, write_prime_rl, write_traces
from farflung.envs.base import Environment
from farflung.envs.registry import load_environment
from farflung.errors import UserError
from farflung.model.description import load_tokenizer_files
from farflung.model.tokenizer import Tokenizer
from farflung.slots.events import LeaseGranted, Submitted, VerdictRecorded
from farflung.state.event_log import SqlEventLog
from farflung.store.object_store import ObjectStore
from farflung.wire.lease import Lease
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout_file import read_rollouts
from farflung.wire.submission import Submission
from farflung.wire.verdict import EvidenceBundle, Outcome, Verdict

TRACES_FOLDER, CHATS_FILE, CARD_FILE, PRIME_RL_FILE = "data", "sft.jsonl", "README.md", "rollouts.parquet"


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """One accepted submission, as the journal has it."""

    submission: Submission
    lease: Lease
    verdict: Verdict


def run_rollouts(arguments: Namespace) -> int:
    folder, out = RunFolder(root=Path(arguments.run)), Path(arguments.out)
    if out.exists():
        raise UserError(f"{out} exists: choose another --out, or remove it")
    rules, accepted = _accepted(folder)
    store = ObjectStore(str(folder.store))
    reader = _Reader(rules, store, folder)
    traces = [trace for each in accepted for trace in reader.traces(each)]
    if not traces:
        raise UserError(f"{folder.root}: no file of an accepted submission is left (coordinator.keep_versions)")
    if arguments.action == "export":
        out.mkdir(parents=True)
        write_prime_rl(traces, out / PRIME_RL_FILE)
        sys.stdout.write(f"{out / PRIME_RL_FILE}: {len(traces)} rollouts in INTELLECT-2's schema\n")
        return 0
    out.mkdir(parents=True)
    num_shards = write_traces(traces, out / TRACES_FOLDER)
    num_chats = write_chats(traces, out / CHATS_FILE)
    write_card(traces, out / CARD_FILE, name=rules.name, env=rules.environment.name, licence=arguments.licence)
    missing = f", {reader.num_missing} submissions whose files are gone" if reader.num_missing else ""
    sys.stdout.write(
        f"{out}: {len(traces)} traces in {num_shards} shards, {num_chats} chats for farflung sft{missing}\n"
    )
    return 0


def _accepted(folder: RunFolder) -> tuple[PoolSpec, list[Accepted]]:
    if not folder.database.exists():
        raise UserError(f"{folder.root} is no folder of a run with a coordinator")
    log = SqlEventLog(f"sqlite:///{folder.database}")
    try:
        state = restore(map(decode, log.replay()))
        if state is None:
            raise UserError(f"{folder.root}: nothing has happened in this run yet")
        leases: dict[str, Lease] = {}
        submissions: dict[str, Submission] = {}
        accepted = []
        for entry in _entries(log):
            match entry:
                case LeaseGranted(lease=lease):
                    leases[lease.lease_id] = lease
                case Submitted(submission=submission):
                    submissions[submission.digest()] = submission
                case VerdictRecorded(verdict=verdict) if verdict.outcome is Outcome.ACCEPTED:
                    handed_in = submissions.get(verdict.submission_digest)
                    if handed_in is not None and handed_in.lease_id in leases:
                        lease = leases[handed_in.lease_id]
                        accepted.append(Accepted(submission=handed_in, lease=lease, verdict=verdict))
    finally:
        log.close()
    return state.rules, accepted


def _entries(log: SqlEventLog) -> Iterator[object]:
    """Those of the journal that were not replaced by a snapshot yet; files of older ones are gone in any case."""
    first = 0
    while entries := log.read(first, 1000):
        yield from map(decode, entries)
        first = entries[-1].sequence + 1


class _Reader:
    """Files and evidence of a run as traces."""

    def __init__(self, rules: PoolSpec, store: ObjectStore, folder: RunFolder) -> None:
        self._rules, self._store = rules, store
        spec = rules.environment
        self._environment: Environment = load_environment(spec.name, spec.seed, spec.args)
        self._tokenizer = Tokenizer.from_files(load_tokenizer_files(folder.model))
        self.num_missing = 0

    def traces(self, accepted: Accepted) -> Iterator[Trace]:
        submission, verdict = accepted.submission, accepted.verdict
        try:
            data = self._store.get(submission.file_key, max_bytes=self._rules.max_file_bytes)
            bundle = self._store.get(evidence_key(verdict.evidence_digest), max_bytes=EvidenceBundle.MAX_BYTES)
        except KeyError:
            self.num_missing += 1
            return
        rollouts = read_rollouts(data, pool_digest=accepted.lease.pool_digest)
        rewards = EvidenceBundle.from_bytes(bundle).rewards
        for rollout, result in zip(rollouts, rewards, strict=True):
            index = accepted.lease.task_indices[rollout.group]
            task = self._environment.task("train", index, rollout.target_length)
            yield Trace(
                problem_id=f"{rollout.env}/{rollout.task_id}",
                messages=tuple({"role": each.role, "content": each.content} for each in task.messages),
                completion=self._tokenizer.decode(rollout.completion_tokens.tolist()),
                reward=result.reward,
                correct=result.correct,
                slot=submission.slot,
                rollout=rollout,
            )
