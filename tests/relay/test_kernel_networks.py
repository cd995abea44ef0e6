"""Relays and a client in a network namespace, shaped by the kernel's queues; skipped where that is not permitted."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import namespace_child
from namespace_child import CANNOT, CHUNK_BYTES, NUM_CHUNKS

LIMIT_S = 60


def in_namespace(kind: str, folder: Path) -> dict[str, Any]:
    missing = [name for name in ("unshare", "ip", "tc") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on this machine")
    words = ["unshare", "-rn", sys.executable, namespace_child.__file__, kind, str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode == CANNOT or "unshare failed" in done.stderr:
        pytest.skip(f"no shaped network here: {done.stdout}{done.stderr}".strip())
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_relay_behind_a_narrow_link_gives_little_and_the_others_all_else(tmp_path: Path) -> None:
    found = in_namespace("rate", tmp_path)
    origin, slow, *fast = found["given"]
    assert found["is_true"]
    assert (origin, found["liars"]) == (0, 0)
    assert slow <= NUM_CHUNKS * CHUNK_BYTES / 10
    assert slow + sum(fast) == NUM_CHUNKS * CHUNK_BYTES


def test_late_and_lost_packets_cost_no_byte_and_blame_nobody(tmp_path: Path) -> None:
    found = in_namespace("netem", tmp_path)
    assert found["is_true"]
    assert found["liars"] == 0
    assert sum(found["given"]) == NUM_CHUNKS * CHUNK_BYTES
