"""`docs/images/budgets.png`: how well budgets are kept where that is free, and what it costs where it is not.

    python -m benchmarks.budgets picture

Reads `budgets.jsonl`, of which the newest row of each run counts; measures nothing.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROWS = Path(__file__).with_name("budgets.jsonl")
PICTURE = Path(__file__).parent.parent / "docs" / "images" / "budgets.png"
FIXED, RANGE, MUTED = "#1f6fb4", "#c2571a", "#888888"
ALPHA_COLORS = ("#a6c8e4", "#4f94cd", "#1f5f99", "#0b2e4f")


def plot(path: Path = PICTURE) -> None:
    """Write the picture from what has been measured so far."""
    rows = load()
    figure = Figure(figsize=(13, 4.2), dpi=110, layout="constrained")
    kept, frontier, by_budget = figure.subplots(1, 3)
    _kept(kept, [row for row in rows if row["task"] == "dots"])
    mod_sum = [row for row in rows if row["task"] == "mod-sum"]
    _frontier(frontier, _by_alpha(mod_sum))
    _by_budget(by_budget, _by_alpha(mod_sum))
    figure.savefig(path, metadata={"Software": "farflung"})


def load() -> list[dict[str, Any]]:
    lines = ROWS.read_text(encoding="utf-8").splitlines() if ROWS.exists() else []
    rows = [json.loads(line) for line in lines]
    return list({(row["task"], row["seed"], row.get("targets"), row.get("alpha")): row for row in rows}.values())


def _by_alpha(rows: Iterable[Mapping[str, Any]]) -> dict[float, list[Mapping[str, Any]]]:
    found: dict[float, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["alpha"]].append(row)
    return dict(sorted(found.items()))


def _kept(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Mean length over the target, before and after, trained on the fixed set and on a range."""
    axes.set(title="Length is free: thinking in dots", xlabel="target, tokens", ylabel="mean length, tokens")
    kinds = sorted({row["targets"] for row in rows}, key=len, reverse=True)
    for kind, color in zip(kinds, (FIXED, RANGE), strict=False):
        mine = [row for row in rows if row["targets"] == kind]
        _line(axes, mine, "before", "length_by_target", color=color, linestyle=":", label=f"{kind}, warm start")
        _line(axes, mine, "after", "length_by_target", color=color, marker="o", label=f"{kind}, trained")
    axes.plot([8, 32], [8, 32], color=MUTED, linewidth=0.8, zorder=0)
    axes.legend(frameon=False, fontsize=8)


def _frontier(axes: Axes, rows: Mapping[float, Sequence[Mapping[str, Any]]]) -> None:
    axes.set(
        title="Length competes: mod-sum, frontier over alpha",
        xlabel="mean |target - length|, steps",
        ylabel="held-out accuracy",
    )
    points: list[tuple[float, float]] = []
    labels: dict[tuple[float, float], str] = {}
    for alpha, mine in rows.items():
        errors, accuracies = ([row["after"][name] for row in mine] for name in ("length_error", "accuracy"))
        axes.scatter(errors, accuracies, s=14, color=FIXED, alpha=0.4)
        points.append((mean(errors), mean(accuracies)))
        place = (round(points[-1][0], 1), round(points[-1][1], 2))
        labels[place] = f"{labels[place]}, {alpha:g}" if place in labels else f"{alpha:g}"
    for (error, accuracy), label in labels.items():
        axes.annotate(label, (error, accuracy), textcoords="offset points", xytext=(-4, -14), fontsize=8)
    if points:
        axes.plot(*zip(*points, strict=True), color=FIXED, marker="o", markersize=4)
    axes.grid(alpha=0.25)


def _by_budget(axes: Axes, rows: Mapping[float, Sequence[Mapping[str, Any]]]) -> None:
    axes.set(title="... and accuracy by budget", xlabel="budget, steps", ylabel="held-out accuracy")
    chosen = list(rows)[-len(ALPHA_COLORS) :]
    for alpha, color in zip(chosen, ALPHA_COLORS, strict=False):
        _line(axes, rows[alpha], "after", "accuracy_by_target", color=color, marker="o", label=f"alpha {alpha:g}")
    axes.set_xticks(sorted({int(each) for mine in rows.values() for each in mine[0]["after"]["accuracy_by_target"]}))
    axes.set_ylim(0, 1.03)
    axes.legend(frameon=False, fontsize=8)
    axes.grid(alpha=0.25)


def _line(axes: Axes, rows: Sequence[Mapping[str, Any]], when: str, name: str, **style: Any) -> None:
    """Mean over seeds, by target."""
    if rows:
        targets = sorted({int(target) for row in rows for target in row[when][name]})
        values = [mean(row[when][name][str(target)] for row in rows) for target in targets]
        axes.plot(targets, values, **style)
