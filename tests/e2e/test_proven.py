"""A pool of strangers with real processes: two honest workers, two that cheat, roles that are killed, and an audit."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit import read_history
from farflung.slots.lifecycle import SlotState
from farflung.wire.verdict import RejectReason
from processes import ENVIRONMENT, run_command
from real_run import RealRun

pytestmark = pytest.mark.timeout(600)

CHEAT = Path(__file__).parents[1] / "harness" / "cheating_worker.py"
SETTINGS = (
    "--run.seed=2",
    "--pool.trust=proven",
    "--pool.max_outstanding_groups=320",
    "--trainer.max_versions=12",
    "--trainer.warm_start.max_steps=300",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRun]:
    """Ended well, although a worker, a validator and the coordinator were killed and two strangers cheated."""
    run = RealRun(tmp_path_factory.mktemp("proven"), *SETTINGS)
    cheats: list[subprocess.Popen[bytes]] = []
    try:
        run.start()
        run.wait_for_version(0)
        for kind in ("weights", "draws"):
            with (run.folder.logs / f"cheat-{kind}.log").open("wb") as log:
                words = [sys.executable, str(CHEAT), kind, run.url]
                cheats.append(subprocess.Popen(words, stdout=log, stderr=log, env=ENVIRONMENT))
        for version, name in ((2, "worker-1"), (4, "validator-1"), (6, "coordinator")):
            run.wait_for_version(version)
            run.kill_role(name)
        run.finish()
        yield run
    finally:
        for cheat in cheats:
            cheat.kill()
            cheat.wait()
        run.clean_up()


def honest_nodes(run: RealRun) -> set[str]:
    """A worker without a key file has another key, and so another name, in each of its lives."""
    said = "".join(run.log(name) for name in ("worker-1", "worker-2"))
    return set(re.findall(r"samples as (0x[0-9a-fA-F]{40}) for pool", said))


def test_cheats_are_turned_away_by_the_check_that_is_meant_for_them_and_nobody_else_is(run: RealRun) -> None:
    """W2 and W10, over the wire."""
    slots = read_history(run.folder).slots.values()
    honest = honest_nodes(run)
    assert len(honest) >= 3  # worker-1 lived twice
    judged = [slot for slot in slots if slot.submission is not None and slot.state.is_final]
    by_reason = {slot.reason for slot in judged if slot.submission and slot.submission.node not in honest}
    assert {RejectReason.ACTIVATIONS, RejectReason.DRAWS} <= by_reason
    accepted = [slot.submission.node for slot in judged if slot.state is SlotState.ACCEPTED and slot.submission]
    assert accepted
    assert set(accepted) <= honest
    assert not [slot for slot in judged if slot.state is SlotState.REJECTED and slot.submission.node in honest]  # type: ignore[union-attr]


def test_an_audit_of_its_ledger_finds_no_deviation(run: RealRun) -> None:
    result = run_command("audit", str(run.folder.root))
    assert (result.returncode, result.stderr) == (0, ""), result.stdout


def test_it_learned_and_nothing_broke(run: RealRun) -> None:
    assert run.summary["versions"] == 12
    assert run.tracebacks() == []
    assert run.orphans() == []
