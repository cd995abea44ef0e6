"""`python -m benchmarks [name ...]`: run benchmarks, append their figures, write the report."""

import sys
from collections.abc import Callable, Sequence

from benchmarks import demo, draws, engine, report

BENCHMARKS: dict[str, Callable[[], None]] = {
    "draws": draws.run,
    "engine": engine.run,
    "demo": demo.run,
}
"""Each measures, prints what it does and calls `record` for every figure."""


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        BENCHMARKS[name]()
    report.write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
