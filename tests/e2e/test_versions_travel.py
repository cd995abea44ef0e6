"""Versions as signed patches between real processes: whoever comes late, or back after a kill, follows."""

import os
import signal

import pytest

from audit import audit
from farflung.identity.keys import read_key
from farflung.identity.signing import check_signer
from real_run import RealRun, StartRun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_late_worker_starts_at_a_snapshot_follows_patches_and_comes_back_after_kill_9(new_run: StartRun) -> None:
    run = new_run(
        "--run.seed=1",
        "--trainer.snapshot_every=5",
        "--trainer.max_versions=80",
        "--supervisor.num_workers=1",
        "--supervisor.worker_overrides=[]",
    )
    run.start()
    run.wait_for_version(7)
    guest = run.start_worker("guest")
    run.until(lambda: tokens_of(run) > 0, "work of the guest")
    os.kill(guest.pid, signal.SIGKILL)
    killed_at = run.version()
    run.wait_for_version(killed_at + 2)
    run.start_worker("guest")
    run.until(lambda: loaded_by(run) > killed_at, "the guest to load a newer version")
    run.finish()
    manifests = [publication.manifest for publication in audit(run.folder).publications]
    assert [manifest.kind for manifest in manifests] == [
        "patch" if manifest.policy_version % 5 else "snapshot" for manifest in manifests
    ]
    address = read_key(run.folder.root / "keys" / "trainer").address
    for manifest in manifests:
        check_signer(manifest, address)
    assert "patches [" in run.log("guest"), "it came when the newest version was a patch"
    assert "not to be believed" not in run.log("guest")
    assert run.tracebacks() == []


def tokens_of(run: RealRun) -> int:
    status = run.status()
    return sum(found.heartbeat.tokens for found in status.nodes if found.heartbeat.node == "guest") if status else 0


def loaded_by(run: RealRun) -> int:
    """Version that the guest has now; -1 while it is not heard of."""
    status = run.status()
    found = [node.heartbeat for node in (status.nodes if status else ()) if node.heartbeat.node == "guest"]
    return found[0].policy_version if found else -1
