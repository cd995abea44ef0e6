"""Memory of a training process over 300 steps of the demo, ours beside TRL. About three minutes.

Resident size of the process that trains, sampled at every step: ours is the trainer of `farflung run demo`, TRL's is
its only process, which samples as well. What is compared: the peak; what the process holds beyond the start of its
first step; and the slope of a straight line through the last 200 steps, which is 0 for a process that leaks nothing.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import trl_peer
from benchmarks.load import shared_machine
from benchmarks.process_memory import resident_bytes, role_pid
from benchmarks.record import record
from benchmarks.start import warm_started
from benchmarks.wall_clock import peer_run

NUM_STEPS = 300
NUM_SLOPE_STEPS = 200
MIB = 1 << 20
TIMEOUT_S = 300.0


def run() -> None:
    """One run of each."""
    with tempfile.TemporaryDirectory(prefix="farflung-bench-") as scratch:
        folder = Path(scratch, "start")
        warm_started(0).save(folder)
        print("ours ...", flush=True)
        ours = _ours(Path(scratch), folder)
        print("TRL ...", flush=True)
        report = peer_run(folder, 0, num_steps=NUM_STEPS, threads=1, target=2.0, limit_s=TIMEOUT_S)
        peer = [(step, size) for step, size in enumerate(report["memory"], start=1)]
    note = {"steps": NUM_STEPS, **shared_machine()}
    for name, unit, measure in (
        ("memory/peak", "MiB", _peak),
        ("memory/growth-since-first-step", "MiB", _growth),
        ("memory/slope-of-last-200-steps", "KiB/step", _slope),
    ):
        values = measure(ours), measure(peer)
        record(name, *values, trl_peer.VERSION, unit, note)
        print(f"{name}: {values[0]:.2f} against {values[1]:.2f} {unit}", flush=True)


def _peak(sizes: list[tuple[int, int]]) -> float:
    return max(size for _, size in sizes) / MIB


def _growth(sizes: list[tuple[int, int]]) -> float:
    return _peak(sizes) - sizes[0][1] / MIB


def _slope(sizes: list[tuple[int, int]]) -> float:
    late = np.array([pair for pair in sizes if pair[0] > NUM_STEPS - NUM_SLOPE_STEPS], dtype=np.float64)
    return float(np.polyfit(late[:, 0], late[:, 1], 1)[0]) / 1024


def _ours(scratch: Path, folder: Path) -> list[tuple[int, int]]:
    """(version, resident bytes) of the trainer, each time that a new version shows in the figures."""
    command = [
        *(sys.executable, "-m", "farflung.cli.main", "run", "demo"),
        *("--run.dir", str(scratch), "--run.name", "ours"),
        f"--trainer.model.path={folder}",
        "--trainer.warm_start.max_steps=0",
        f"--trainer.max_versions={NUM_STEPS}",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    deadline_s = time.monotonic() + TIMEOUT_S
    metrics = scratch / "ours" / "metrics.jsonl"
    sizes: list[tuple[int, int]] = []
    pid: int | None = None
    try:
        while process.poll() is None and time.monotonic() < deadline_s:
            pid = pid or role_pid(process.pid, "trainer")
            version = _num_versions(metrics)
            size = resident_bytes(pid) if pid else 0
            if size and version and (not sizes or version > sizes[-1][0]):
                sizes.append((version, size))
            time.sleep(0.05)
    finally:
        process.terminate()
        process.wait(timeout=60)
    if not sizes or sizes[-1][0] < NUM_STEPS - 1:
        raise RuntimeError(f"the run ended at version {sizes[-1][0] if sizes else 0} of {NUM_STEPS}")
    return sizes


def _num_versions(metrics: Path) -> int:
    return metrics.read_bytes().count(b'"kind": "train"') if metrics.exists() else 0
