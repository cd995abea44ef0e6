"""Do the shipped environments teach? Each shipped configuration of a tiny model, three seeds, `run --local`.

    python -m benchmarks.learning_curves [NAME ...]

Held-out accuracy after the warm start and at the end, with the minutes that it took. A run is one of `farflung run NAME
--local --run.seed=N`; nothing is tuned per seed.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

from benchmarks.record import record

NAMES = ("demo", "trading", "grid-walk", "latin-square", "countdown", "find-formula", "mod-sum")
SEEDS = (0, 1, 2)
TIMEOUT_S = 900


def run(name: str, seed: int, folder: Path) -> tuple[float, float, float]:
    """(accuracy after the warm start, accuracy at the end, minutes)."""
    started_s = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "farflung.cli.main", "run", name, "--local", f"--run.seed={seed}", f"--run.dir={folder}",
         f"--run.name={name}-{seed}"],
        check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    minutes = (time.monotonic() - started_s) / 60
    rows = [json.loads(line) for line in (folder / f"{name}-{seed}" / "metrics.jsonl").read_text().splitlines()]
    accuracies = [row["accuracy"] for row in rows if row["kind"] == "eval"]
    return accuracies[0], accuracies[-1], minutes


def measure(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = [run(name, seed, Path(folder)) for seed in SEEDS]
    record(
        f"learning/{name}/accuracy",
        mean(end for _, end, _ in found),
        mean(start for start, _, _ in found),
        "the same policy after its warm start",
        "held-out accuracy",
        detail={
            "after the warm start": ", ".join(f"{start:.3f}" for start, _, _ in found),
            "at the end": ", ".join(f"{end:.3f}" for _, end, _ in found),
            "minutes": ", ".join(f"{minutes:.1f}" for _, _, minutes in found),
            "seeds": ", ".join(map(str, SEEDS)),
            "rose on every seed": all(end > start for start, end, _ in found),
        },
    )


def main() -> None:
    for name in sys.argv[1:] or NAMES:
        measure(name)


if __name__ == "__main__":
    main()
