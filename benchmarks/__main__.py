"""`python -m benchmarks [name ...]`: run benchmarks, append their figures, write the report."""

import sys
from collections.abc import Sequence
from importlib import import_module

from benchmarks import report

BENCHMARKS = (
    "draws",
    "engine",
    "smollm2_engine",
    "foreign",
    "serving",
    "training_step",
    "smollm2_step",
    "lora",
    "patches",
    "memory",
    "wall_clock",
    "demo",
    "staleness",
    "stragglers",
    "curriculum",
    "grading",
)
"""Modules, imported when they are wanted, since some need a peer library. Each has `run()`, which measures, prints what
it does and calls `record` for every figure."""
WHEN_NAMED = ("smollm2_learning", "sandbox", "network_faults", "peer_transport", "broadcast", "next_version", "spread")
"""Others that take long: only when they are asked for."""


def main(names: Sequence[str]) -> int:
    known = (*BENCHMARKS, *WHEN_NAMED)
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        import_module(f"benchmarks.{name}").run()
    report.write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
