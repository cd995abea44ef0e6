"""One measured figure, appended to `results.jsonl`; `report.py` turns the newest of each name into a table."""

import json
import os
import platform
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).with_name("results.jsonl")


def record(
    name: str,
    ours: float,
    peer: float | None,
    peer_version: str | None,
    unit: str,
    detail: Mapping[str, Any] | None = None,
    *,
    path: Path = RESULTS,
) -> dict[str, Any]:
    """Append a figure. `ratio` is ours / peer, so above 1 means more of `unit`; None without a peer."""
    entry = {
        "name": name,
        "ours": _rounded(ours),
        "peer": None if peer is None else _rounded(peer),
        "peer_version": peer_version,
        "ratio": None if peer is None else _rounded(ours / peer),
        "unit": unit,
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "detail": dict(detail or {}),
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
    return entry


def results(path: Path = RESULTS) -> Iterator[dict[str, Any]]:
    """Every figure ever recorded, oldest first."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def machine() -> str:
    """Processor, cores that this process may use, operating system, torch version."""
    return f"{_processor()}, {len(os.sched_getaffinity(0))} cores, {platform.system()}, torch {torch.__version__}"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                simd = torch.backends.cpu.get_cpu_capability()
                return f"{line.partition(':')[2].strip()} ({simd})"
    return platform.processor() or platform.machine()


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
