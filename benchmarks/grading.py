"""Verdicts on the labelled pairs of `math_pairs`, ours beside plain math-verify, and gradings per CPU-second.

An error is a verdict that differs from the label; "no verdict" for a pair is one too. A wrong "yes" pays for wrong work
and is counted by itself. Both sides see each pair twice: raw (`$...$`) and boxed. The peer runs in a process that is
killed after `PEER_WALL_S`; such a pair counts as "no" for it, and the number of them is in the details. About three
minutes.
"""

import logging
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.load import shared_machine
from benchmarks.math_pairs.split import Part, read
from benchmarks.record import record
from farflung.envs.graders.math import MathGrader
from farflung.rewards.decision import Decision
from farflung.sandbox.math.config import MathPoolConfig
from farflung.sandbox.math.pool import MathPool

PEER = f"math-verify {version('math-verify')}"
PEER_WALL_S = 20.0
PARTS: tuple[Part, ...] = ("dev", "held", "fresh", "unseen", "everyday")
FORMS: dict[str, str] = {"raw": "${}$", "boxed": r"\boxed{{{}}}"}
SLOW_KINDS = ("tower", "report")
"""Left out of throughput: there the peer's time limits are what is measured."""
Ask = Callable[[str, str], Decision]


def run() -> None:
    """All figures."""
    for part in PARTS:
        rows = read(part)
        for form, template in FORMS.items():
            with MathPool() as pool:
                ours = _counts(rows, template, MathGrader(pool=pool).grade_answer)
            with _peer_pool() as peer:
                theirs = _counts(rows, template, peer.ask)
            for figure, is_counted in (("errors", None), ("wrong-yes", (0, 1.0))):
                counts = [sum(n for key, n in side.items() if is_counted in (None, key[:2])) for side in (ours, theirs)]
                note = {"pairs": len(rows), "ours": _listed(ours), "peer": _listed(theirs), **shared_machine()}
                record(f"grading/{figure}/{part}-{form}", counts[0], counts[1], PEER, "pairs", note)
                print(f"{part} {form}: {figure} {counts[0]} against {counts[1]} of {len(rows)}", flush=True)
    _throughput()


def _peer_pool() -> MathPool:
    config = MathPoolConfig(wall_s=PEER_WALL_S, max_attempts=1)
    return MathPool(config, command=[sys.executable, str(Path(__file__).with_name("grading_peer.py"))])


def _counts(rows: list[dict[str, Any]], template: str, ask: Ask) -> Counter[tuple[int, float | None, str]]:
    """How often each (label, other verdict, kind) occurred."""

    def grade(row: dict[str, Any]) -> Decision:
        return ask(template.format(row["gold"]), template.format(row["answer"]))

    with ThreadPoolExecutor(2) as threads:
        decisions = list(threads.map(grade, rows))
    found: Counter[tuple[int, float | None, str]] = Counter()
    for row, decision in zip(rows, decisions, strict=True):
        verdict = 0.0 if decision.rule == "sandbox_failed" and row["label"] == 0 else decision.verdict
        if verdict != row["label"]:
            found[row["label"], verdict, row["kind"]] += 1
    return found


def _listed(counts: Counter[tuple[int, float | None, str]]) -> str:
    """Errors by kind: `unit 0->1 x 7`."""
    words = {1.0: "1", 0.0: "0", None: "none"}
    return ", ".join(f"{kind} {label}->{words[verdict]} x {n}" for (label, verdict, kind), n in counts.most_common())


def _throughput() -> None:
    from benchmarks.grading_peer import is_equal

    logging.disable(logging.CRITICAL)
    rows = [row for part in PARTS for row in read(part) if row["kind"] not in SLOW_KINDS]
    pairs = [(FORMS["boxed"].format(row["gold"]), FORMS["boxed"].format(row["answer"])) for row in rows]
    exact = MathGrader()
    is_open = [exact.grade_answer(*pair).undecided for pair in pairs]
    decided = [pair for pair, is_asked in zip(pairs, is_open, strict=True) if not is_asked]
    note = {"pairs": len(decided), **shared_machine()}
    ours = len(decided) / _cpu_s(lambda: [exact.grade_answer(*pair) for pair in decided])
    peer = len(decided) / _cpu_s(lambda: [is_equal(*pair) for pair in decided])
    record("grading/exact-rules", ours, peer, PEER, "gradings/CPU-s", note)
    print(f"exact rules: {ours:.0f} against {peer:.0f} gradings per CPU-second", flush=True)
    both = len(pairs) / _cpu_s(lambda: _with_opinion(pairs))
    whole = len(pairs) / _cpu_s(lambda: [is_equal(*pair) for pair in pairs])
    note = {"pairs": len(pairs), "undecided by exact rules": sum(is_open), "children": "counted, with their start"}
    record("grading/with-second-opinion", both, whole, PEER, "gradings/CPU-s", {**note, **shared_machine()})
    print(f"with second opinion: {both:.0f} against {whole:.0f}", flush=True)


def _with_opinion(pairs: list[tuple[str, str]]) -> None:
    with MathPool(MathPoolConfig(max_children=1)) as pool:
        grader = MathGrader(pool=pool)
        for pair in pairs:
            grader.grade_answer(*pair)


def _cpu_s(work: Callable[[], object]) -> float:
    """CPU time of this process and of children that ended."""

    def spent() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime

    before = spent()
    work()
    return spent() - before
