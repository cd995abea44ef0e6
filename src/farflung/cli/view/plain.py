"""The figures as one line, for logs and pipes.

[1 min 32 s] version 123/500  reward 0.61  held-out 0.71  staleness 2.1 (max 4)  5.2 k tok/s  waiting: trainer 8 %, worker-1 21 %  dropped 415  left 3 min 10 s
"""  # noqa: E501 (a line as it is printed)

from farflung.cli.view import words
from farflung.cli.view.state import Figures

START_S = 30.0
"""That a coordinator may take to start before its silence is worth a word."""


def line(figures: Figures) -> str:
    parts = [f"[{words.duration(figures.elapsed_s)}] {progress(figures)}"]
    if figures.reward:
        parts.append(f"reward {figures.reward[-1][1]:.2f}")
    if figures.accuracy:
        parts.append(f"held-out {figures.accuracy[-1][1]:.2f}")
    if figures.staleness_mean is not None:
        parts.append(f"staleness {figures.staleness_mean:.1f} (max {figures.staleness_max})")
    if figures.tokens_per_s is not None:
        parts.append(f"{words.count(figures.tokens_per_s)} tok/s")
    waits = [f"{n.name} {words.percent(n.idle_share)}" for n in figures.nodes if n.idle_share is not None]
    if waits:
        parts.append(f"waiting: {', '.join(waits)}")
    if figures.drops:
        parts.append(f"dropped {sum(figures.drops.values())}")
    if figures.left_s is not None:
        parts.append(f"left {words.duration(figures.left_s)}")
    if trouble := reach(figures):
        parts.append(trouble)
    return "  ".join(parts)


def reach(figures: Figures) -> str:
    """What is wrong between us and the coordinator; nothing while it has only just been started."""
    if figures.is_reachable or (not figures.was_reached and figures.elapsed_s < START_S):
        return ""
    return "coordinator does not answer" if figures.was_reached else "coordinator does not answer yet"


def progress(figures: Figures) -> str:
    """Where the run stands: starting, warming up, or at a version."""
    if figures.version >= 0:
        return f"version {figures.version}/{figures.max_versions}"
    if figures.warm_start is None:
        return "starting"
    row = figures.warm_start
    accuracy = f", accuracy {row['accuracy']:.2f}" if row.get("accuracy") is not None else ""
    return f"warm start: supervised step {row.get('step', 0)}{accuracy}"
