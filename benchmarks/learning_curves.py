"""Do the shipped environments teach? Each shipped configuration of a tiny model, three seeds, `run --local`.

    python -m benchmarks.learning_curves [NAME ... | picture]

Held-out accuracy after the warm start and at the end, with the minutes that it took; of take-away, which learns by
self-play, the share of games that it wins against an opponent that never errs, from starts that can be won. A run is
one of `farflung run NAME --local --run.seed=N`; nothing is tuned per seed. Curves go to `learning_curves.jsonl`, of
which the newest of each name and seed counts for the picture, `docs/images/learning.png`.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

from benchmarks.record import record

NAMES = (
    "demo",
    "trading",
    "grid-walk",
    "latin-square",
    "countdown",
    "find-formula",
    "mod-sum",
    "take-away",
    "guess-letter",
)
SEEDS = (0, 1, 2)
TIMEOUT_S = 900
CURVES = Path(__file__).with_name("learning_curves.jsonl")
PICTURE = Path(__file__).parent.parent / "docs" / "images" / "learning.png"


def run(name: str, seed: int, folder: Path) -> tuple[float, float, float, float]:
    """(accuracy after the warm start, accuracy at the end, minutes, CPU minutes)."""
    started_s, cpu_s = time.monotonic(), _children_cpu_s()
    subprocess.run(
        [sys.executable, "-m", "farflung.cli.main", "run", name, "--local", f"--run.seed={seed}", f"--run.dir={folder}",
         f"--run.name={name}-{seed}"],
        check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    minutes = (time.monotonic() - started_s) / 60
    rows = [json.loads(line) for line in (folder / f"{name}-{seed}" / "metrics.jsonl").read_text().splitlines()]
    curve = [(row["version"], row["accuracy"]) for row in rows if row["kind"] == "eval"]
    with CURVES.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"name": name, "seed": seed, "minutes": round(minutes, 2), "curve": curve}) + "\n")
    return curve[0][1], curve[-1][1], minutes, (_children_cpu_s() - cpu_s) / 60


def _children_cpu_s() -> float:
    """Of processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = [run(name, seed, Path(folder)) for seed in SEEDS]
    record(
        f"learning/{name}/accuracy",
        mean(end for _, end, *_ in found),
        mean(start for start, *_ in found),
        "the same policy after its warm start",
        "held-out accuracy",
        detail={
            "after the warm start": ", ".join(f"{start:.3f}" for start, *_ in found),
            "at the end": ", ".join(f"{end:.3f}" for _, end, *_ in found),
            "minutes": ", ".join(f"{minutes:.1f}" for _, _, minutes, _ in found),
            "CPU minutes": ", ".join(f"{minutes:.1f}" for *_, minutes in found),
            "seeds": ", ".join(map(str, SEEDS)),
            "rose on every seed": all(end > start for start, end, *_ in found),
        },
    )


def picture() -> None:
    from matplotlib.figure import Figure

    rows = [json.loads(line) for line in CURVES.read_text(encoding="utf-8").splitlines()]
    newest = {(row["name"], row["seed"]): row["curve"] for row in rows}
    names = [name for name in NAMES if any(key[0] == name for key in newest)]
    figure = Figure(figsize=(15, 5.4), dpi=110, layout="constrained")
    for name, axes in zip(names, figure.subplots(2, 5, sharey=True).flat, strict=False):
        for curve in (curve for (of, _), curve in newest.items() if of == name):
            axes.plot(*zip(*curve, strict=True), color="#1f6fb4", linewidth=1.2)
        axes.set(title=name, xlabel="version", ylim=(0, 1))
        axes.grid(alpha=0.25)
    figure.supylabel("held-out accuracy, one line a seed")
    for axes in figure.axes[len(names) :]:
        axes.remove()
    figure.savefig(PICTURE, metadata={"Software": "farflung"})


def main() -> None:
    for name in sys.argv[1:] or [*NAMES, "picture"]:
        if name == "picture":
            picture()
        else:
            measure(name)


if __name__ == "__main__":
    main()
