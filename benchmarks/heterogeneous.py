"""Machines of unequal speed with and without thinking budgets of their own: who finishes slots when, and what expires.

    python -m benchmarks.heterogeneous

`farflung run` with three worker processes that sample at full speed, at a third and at a tenth of it (they sleep), on
digits to sort after as many dots as the prompt asks for. The warm start honours the target, so a budget says what a
slot costs. Arms: every worker gets every budget, with time enough and with a lease that the slowest often misses; each
speed has a class with a budget of its own; each worker measures its class (`auto`). Times are from the coordinator's
journal: from lease to receipt, and an expired lease counts with the whole time that it was lent for. What an expired
lease loses is told in the tokens that it asked for.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.record import record
from farflung.coordinator.journal import decode
from farflung.slots.events import LeaseExpired, LeaseGranted, Submitted, VerdictRecorded
from farflung.slots.grants import LEASE_EXPIRED
from farflung.state.event_log import SqlEventLog
from farflung.wire.lease import Lease
from farflung.wire.verdict import Outcome

SPEEDS = {"worker-1": "1x", "worker-2": "3x slower", "worker-3": "10x slower"}
SPEED_SETTINGS = (1.0, 1 / 3, 0.1)
BUDGETS = (8, 24, 80)
CLASSES = {"fast": (80,), "middling": (24,), "slow": (8,)}
"""In inverse proportion to the speeds."""
GROUP_SIZE = 8
LONG_LEASE_S, SHORT_LEASE_S = 30.0, 2.0
NUM_VERSIONS = 100
TIMEOUT_S = 600

CONFIG = f"""
[run]
name = "heterogeneous"

[environment]
name = "budgeted:sort-digits"

[environment.args]
num_digits = 4

[environment.args.budget]
targets = "{",".join(map(str, BUDGETS))}"
told = "{{target}}:"
where = "start"
after = "|"
filler = "."
honours = 1.0

[pool]
name = "heterogeneous"
group_size = {GROUP_SIZE}
groups_per_slot = 16
groups_per_batch = 32
max_staleness = 8
max_outstanding_groups = 192
max_prompt_tokens = 16
max_completion_tokens = 96
max_attempts = 5

[coordinator]
port = 0

[trainer]
max_versions = {NUM_VERSIONS}

[trainer.optimizer]
lr = 2e-4

[trainer.shaping]
length = "exact"
length_alpha = 0.02

[trainer.objective]
signal = "total"

[trainer.warm_start]
max_steps = 800
target_accuracy = 0.9
batch_size = 64
lr = 3e-3

[trainer.evaluation]
every_versions = 1000
num_tasks = 128

[supervisor]
num_workers = 3
num_validators = 1
"""


@dataclass(kw_only=True)
class Speed:
    """What became of the leases of one worker."""

    slot_s: list[float] = field(default_factory=list)
    """Finished or expired."""
    tokens_asked: int = 0
    tokens_expired: int = 0
    num_leases: int = 0
    num_expired: int = 0
    num_accepted: int = 0
    tokens_accepted: int = 0


def read_speeds(events: Iterable[object]) -> dict[str, Speed]:
    """By worker; leases that were still open at the end are left out."""
    speeds: dict[str, Speed] = defaultdict(Speed)
    open_leases: dict[int, Lease] = {}
    submitted: dict[int, tuple[str, int]] = {}
    for event in events:
        if isinstance(event, LeaseGranted):
            open_leases[event.lease.slot] = event.lease
        elif isinstance(event, Submitted):
            lease = open_leases.pop(event.submission.slot)
            _ended(speeds[lease.node], lease, event.receipt.received_at_ms)
            submitted[lease.slot] = (lease.node, event.submission.num_tokens)
        elif isinstance(event, LeaseExpired) and event.slot in open_leases:
            lease = open_leases.pop(event.slot)
            if event.reason == LEASE_EXPIRED:
                speed = speeds[lease.node]
                _ended(speed, lease, lease.expires_at_ms)
                speed.num_expired += 1
                speed.tokens_expired += _tokens_asked(lease)
        elif isinstance(event, VerdictRecorded) and event.verdict.outcome is Outcome.ACCEPTED:
            node, num_tokens = submitted[event.slot]
            speeds[node].num_accepted += 1
            speeds[node].tokens_accepted += num_tokens
    return dict(speeds)


def _ended(speed: Speed, lease: Lease, at_ms: int) -> None:
    speed.slot_s.append((at_ms - lease.issued_at_ms) / 1000)
    speed.num_leases += 1
    speed.tokens_asked += _tokens_asked(lease)


def _tokens_asked(lease: Lease) -> int:
    return GROUP_SIZE * sum(lease.target_lengths)


def run(name: str, lease_s: float, overrides: Sequence[Mapping[str, object]], settings: Sequence[str]) -> None:
    """One arm; its figures are recorded."""
    workers = ", ".join(
        "{" + ", ".join(f"{key} = {_toml(value)}" for key, value in each.items()) + "}" for each in overrides
    )
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.toml"
        config.write_text(CONFIG)
        subprocess.run(
            [sys.executable, "-m", "farflung.cli.main", "run", str(config), f"--run.dir={folder}",
             f"--pool.lease_s={lease_s}",             f"--supervisor.worker_overrides=[{workers}]", *settings],
            check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        events = list(_events(Path(folder) / "heterogeneous" / "coordinator.db"))
    speeds, seconds = read_speeds(events), _seconds(events)
    asked, expired = (sum(getattr(each, key) for each in speeds.values()) for key in ("tokens_asked", "tokens_expired"))
    detail: dict[str, Any] = {
        SPEEDS[node]: _text(speed) for node, speed in sorted(speeds.items(), key=lambda item: item[0])
    }
    p50s = [statistics.median(speed.slot_s) for speed in speeds.values() if speed.slot_s]
    detail |= {
        "slowest p50 over fastest p50": f"{max(p50s) / min(p50s):.1f}",
        "tokens accepted a second, all": round(sum(each.tokens_accepted for each in speeds.values()) / seconds),
        "lease": f"{lease_s:g} s",
        "machine": f"shared, load average {os.getloadavg()[0]:.1f}",
    }
    record(f"heterogeneous/{name}/expired", expired / asked, None, None, "share of tokens asked for", detail)
    print(f"{name}: {detail}", flush=True)


def _seconds(events: Iterable[object]) -> float:
    """From the first lease to the last receipt."""
    begun = [event.lease.issued_at_ms for event in events if isinstance(event, LeaseGranted)]
    ended = [event.receipt.received_at_ms for event in events if isinstance(event, Submitted)]
    return (max(ended) - min(begun)) / 1000


def _events(path: Path) -> Iterable[object]:
    log = SqlEventLog(f"sqlite:///{path}")
    try:
        for entry in log.replay():
            yield decode(entry)
    finally:
        log.close()


def _text(speed: Speed) -> str:
    p50, p95 = statistics.median(speed.slot_s), statistics.quantiles(speed.slot_s, n=20, method="inclusive")[-1]
    return (
        f"slots of p50 {p50:.2f} s, p95 {p95:.2f} s; {speed.num_expired} of {speed.num_leases} leases and "
        f"{speed.tokens_expired / speed.tokens_asked:.0%} of tokens expired; {speed.num_accepted} slots and "
        f"{speed.tokens_accepted} tokens accepted"
    )


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def main() -> None:
    speeds: list[dict[str, object]] = [{"speed": speed} for speed in SPEED_SETTINGS]
    classes = "{" + ", ".join(f"{name} = {list(targets)}" for name, targets in CLASSES.items()) + "}"
    told = f"--pool.capability_classes={classes}"
    run("same budgets, long lease", LONG_LEASE_S, speeds, [])
    run("same budgets", SHORT_LEASE_S, speeds, [])
    named = [{**each, "capability_class": name} for each, name in zip(speeds, CLASSES, strict=True)]
    run("class budgets", SHORT_LEASE_S, named, [told])
    run("measured classes", SHORT_LEASE_S, [{**each, "capability_class": "auto"} for each in speeds], [told])


if __name__ == "__main__":
    main()
