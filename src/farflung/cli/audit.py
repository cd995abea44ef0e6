"""`farflung audit RUN|URL`: everything that a coordinator did, computed again from the secrets that it revealed."""

import asyncio
import json
import math
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from farflung.api.client import CoordinatorClient
from farflung.cli import ports
from farflung.cli.audit_checks import faults_by_node, show_checks
from farflung.cli.run_folder import RunFolder
from farflung.coordinator.history import History, read_history
from farflung.coordinator.journal import decode
from farflung.coordinator.pool_state import restore
from farflung.coordinator.public_ledger import shown
from farflung.errors import PeerFault, UserError
from farflung.identity.signing import check_signer, signer_of
from farflung.slots.audit import Audit, Deviation, audit
from farflung.state.event_log import Entry, SqlEventLog
from farflung.store.object_store import ObjectStore
from farflung.validation.drift import Drift
from farflung.validation.node_drift import drift_of_nodes
from farflung.validation.oversight import Oversight, oversee
from farflung.wire.epoch import EpochNotice
from farflung.wire.history import MAX_SEGMENT_BYTES, Line, epochs_of, read_segment, segments_of
from farflung.wire.manifest import Publication
from farflung.wire.node import Role

EXIT_DEVIATION = 1
_ENTRIES_PER_READ = 1000
MAX_SHOWN = 20


def run_audit(arguments: Namespace) -> int:
    """0 when every rule was kept, 1 when not."""
    source: str = arguments.source
    history, notices = asyncio.run(_from_url(source)) if ports.is_url(source) else _from_folder(Path(source))
    found = audit(history.rules, notices, history.events, history.plans, history.plan_of_version)
    checks = oversee(history.rules, notices, history.events)
    deviations = [
        *found.deviations,
        *checks.deviations,
        *_unsigned(history, checks),
        *_chain_deviations(history.publications),
    ]
    drifting = _drifting(history)
    if arguments.json:
        sys.stdout.write(json.dumps(_as_json(history, notices, found, checks, deviations, drifting), indent=2) + "\n")
    else:
        _show(history, notices, found, deviations)
        show_checks(checks)
        for node, drift in drifting.items():
            sys.stdout.write(
                f"node {node} is to be looked at: {drift.num_submissions} accepted submissions, each within the "
                f"thresholds, are together what honest work is with a chance of {math.exp(-drift.peak):.0e}\n"
            )
    return EXIT_DEVIATION if deviations else 0


async def _from_url(url: str) -> tuple[History, list[EpochNotice]]:
    """What a coordinator published so far."""
    async with CoordinatorClient(url, node="audit", role=Role.COORDINATOR) as client:
        notices = await client.epochs()
        keys = await client.ledger_keys()
        parts = [await client.ledger_part(key) for _, _, key in segments_of(keys)]
        for number, key in epochs_of(keys).items():
            if number not in {notice.number for notice in notices}:  # forgotten there, and still published
                notices.append(EpochNotice.from_bytes(await client.ledger_part(key)))
    if not parts:
        raise UserError(f"{url} has published nothing of its ledger yet: ask again when its first epoch is over")
    lines = (line for part in parts for line in read_segment(part))
    return read_history(lines), sorted(notices, key=lambda notice: notice.number)


def _from_folder(root: Path) -> tuple[History, list[EpochNotice]]:
    """A whole run, by its journal and what was published of it. Its owner knows every secret."""
    folder = RunFolder(root=root)
    if not folder.database.exists():
        raise UserError(f"{root} is no folder of a run with a coordinator: name one, or the address of a coordinator")
    store = ObjectStore(str(folder.store))
    published = segments_of(store.keys("ledger"))
    segments = (store.get(key, max_bytes=MAX_SEGMENT_BYTES) for _, _, key in published)
    log = SqlEventLog(f"sqlite:///{folder.database}")
    try:
        state = restore(map(decode, log.replay()))
        if state is None:
            raise UserError(f"{root}: nothing has happened in this run yet")
        tail = [shown(entry) for entry in _entries_from(log, published[-1][1] + 1 if published else 0)]
    finally:
        log.close()
    lines = (line for part in segments for line in read_segment(part))
    next_slot = state.ledger.table.next_slot
    notices = [
        replace(notice, secret=began.secret.hex(), end_slot=next_slot if notice.end_slot is None else notice.end_slot)
        for notice, began in zip(state.epochs.notices(next_slot), state.epochs.began, strict=True)
    ]
    return read_history(_both(lines, tail)), notices


def _both(lines: Iterator[Line], tail: Sequence[Line]) -> Iterator[Line]:
    yield from lines
    yield from tail


def _entries_from(log: SqlEventLog, first: int) -> Iterator[Entry]:
    while entries := log.read(first, _ENTRIES_PER_READ):
        yield from entries
        first = entries[-1].sequence + 1


def _chain_deviations(publications: Sequence[Publication]) -> list[Deviation]:
    """Manifests and batch records name the ones before, and one key signed all of them."""
    found: list[Deviation] = []
    manifest_digest = batch_digest = trainer = ""
    for publication in publications:
        manifest, batch = publication.manifest, publication.batch
        where = f"version {manifest.policy_version}"
        signers = []
        for record in (manifest, batch):
            try:
                signers += [] if record is None else [signer_of(record)]
            except PeerFault as fault:
                found.append(Deviation(rule="signature", where=where, detail=fault.detail))
        trainer = trainer or next(iter(signers), "")
        strangers = {signer for signer in signers if signer != trainer}
        found += [
            Deviation(rule="signature", where=where, detail=f"signed by {signer}, the trainer is {trainer}")
            for signer in sorted(strangers)
        ]
        if manifest.previous_digest != manifest_digest:
            found.append(Deviation(rule="chain", where=where, detail="its manifest does not follow the one before"))
        if batch is not None and batch.previous_digest != batch_digest:
            found.append(Deviation(rule="chain", where=where, detail="its batch record does not follow the one before"))
        manifest_digest = manifest.digest()
        batch_digest = batch_digest if batch is None else batch.digest()
    return found


def _unsigned(history: History, checks: Oversight) -> list[Deviation]:
    """Verdicts for which something was recorded against a validator are its own, where validators sign."""
    if history.rules.trust == "open":
        return []
    found = []
    for fault in checks.faults:
        if fault.verdict is None:
            continue
        try:
            check_signer(fault.verdict, fault.node)
        except PeerFault as error:
            found.append(Deviation(rule="signature", where=f"fault of {fault.node}", detail=error.detail))
    return found


def _drifting(history: History) -> dict[str, Drift]:
    """Nodes whose figures are too large too often, in pools that say what to expect."""
    proofs = history.rules.proofs
    if proofs is None or proofs.expected is None:
        return {}
    found = drift_of_nodes((event for _, event in history.events), proofs.expected)
    return {node: drift for node, drift in sorted(found.items()) if drift.is_alarm()}


def _as_json(
    history: History,
    notices: Sequence[EpochNotice],
    found: Audit,
    checks: Oversight,
    deviations: Sequence[Deviation],
    drifting: Mapping[str, Drift],
) -> dict[str, object]:
    return {
        "pool": history.rules.name,
        "num_entries": history.num_entries,
        "num_versions": len(history.publications),
        "num_epochs": len(notices),
        "num_leases_checked": found.num_leases_checked,
        "num_leases_sealed": found.num_leases_sealed,
        "deviations": [asdict(deviation) for deviation in deviations],
        "faults": [asdict(fault) for fault in faults_by_node(checks)],
        "lost_bonds": {node: fault.kind.value for node, fault in checks.lost_bonds.items()},
        "num_panels_checked": checks.num_panels_checked,
        "num_ringers": checks.num_ringers,
        "audits": {"due": checks.num_audits_due, "done": checks.num_audits_done},
        "drifting": {node: drift.num_submissions for node, drift in drifting.items()},
    }


def _show(history: History, notices: Sequence[EpochNotice], found: Audit, deviations: Sequence[Deviation]) -> None:
    console = Console(file=sys.stdout)
    console.print(
        f"pool {history.rules.name}: {history.num_entries} entries, {len(history.publications)} versions, "
        f"{len(notices)} epochs",
        markup=False,
    )
    sealed = f", {found.num_leases_sealed} of epochs that are not revealed yet" if found.num_leases_sealed else ""
    console.print(f"leases computed again: {found.num_leases_checked}{sealed}", markup=False)
    if not deviations:
        console.print("every lease, version and batch record is as the rules say", style="green")
        return
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for title in ("rule", "where", "what is wrong"):
        table.add_column(title)
    for deviation in deviations[:MAX_SHOWN]:
        table.add_row(deviation.rule, deviation.where, deviation.detail)
    console.print(table)
    more = f", {MAX_SHOWN} of them shown" if len(deviations) > MAX_SHOWN else ""
    console.print(f"{len(deviations)} deviations{more}", style="red")
