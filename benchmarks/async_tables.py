"""The measured tables of `docs/async.md`, written between its marks from `staleness.jsonl` and `results.jsonl`.

    python -m benchmarks.async_tables

Between `<!-- measured: NAME -->` and `<!-- end -->` stands what this module writes; the prose around it is people's.
"""

import re
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.record import results
from benchmarks.staleness import DELAYED_OBJECTIVES, DELAYS, LAGS, TASKS, Arm, by_seed, compare, delayed_arm, load
from benchmarks.stragglers import DROP_CASES, SPEEDS

DOCUMENT = Path(__file__).parent.parent / "docs" / "async.md"
SPEED_UPS = "async/speed-up/simulated/delay-1-step"
NAMES = {"decoupled": "decoupled", "behaviour": "two policies", "naive": "naive"}

NOTHING = "(not measured yet)"

Done = Mapping[str, Mapping[str, Any]]


def accuracy_table(task: str, lr: float, done: Done) -> str:
    """Mean accuracy and its paired difference to staleness 0, for each lag and objective."""
    reference = by_seed(done, Arm(task=task, objective="decoupled", lr=lr, seed=0))
    by_objective = {
        name: {lag: by_seed(done, Arm(task=task, objective=name, staleness=lag, lr=lr, seed=0)) for lag in LAGS}
        for name in NAMES
    }
    if not reference:
        return NOTHING
    shown = [name for name, by_lag in by_objective.items() if any(len(values) > 1 for values in by_lag.values())]
    lines = [_row("staleness", *(NAMES[name] for name in shown)), "|---" * (1 + len(shown)) + "|"]
    lines.append(_row("0", *([f"{_mean(reference):.3f}"] * len(shown))))
    for lag in LAGS:
        cells = [_accuracy_cell(by_objective[name][lag], reference) for name in shown]
        if any(cells):
            lines.append(_row(str(lag), *cells))
    return "\n".join(lines)


def _accuracy_cell(values: Mapping[int, float], reference: Mapping[int, float]) -> str:
    if len(values) < 2:
        return ""
    comparison = compare(values, reference)
    seeds = "" if len(values) == len(reference) else f", {len(values)} seeds"
    half = comparison.high - comparison.mean
    finding = f"**{comparison.finding}**" if comparison.finding == "equivalent" else comparison.finding
    return f"{_mean(values):.3f} ({comparison.mean:+.3f} ± {half:.3f}{seeds}) {finding}"


def delay_table(done: Done) -> str:
    """Accuracy of each objective on the same delayed histories."""
    lines = [
        _row("mean delay", "staleness, mean (largest)", "GEPO", "GRPO, two policies", "GSPO", "GEPO - GRPO"),
        "|---" * 6 + "|",
    ]
    for delay in DELAYS:
        arms = {name: delayed_arm(name, delay, seed=0) for name in DELAYED_OBJECTIVES}
        by_name = {name: by_seed(done, arm) for name, arm in arms.items()}
        if min(len(values) for values in by_name.values()) < 2:
            continue
        mean = _mean(by_seed(done, arms["gepo"], "mean_staleness"))
        largest = max(by_seed(done, arms["gepo"], "max_staleness").values())
        comparison = compare(by_name["gepo"], by_name["behaviour"])
        accuracies = [f"{_mean(by_name[name]):.3f}" for name in DELAYED_OBJECTIVES]
        difference = f"{comparison.mean:+.3f} ± {comparison.high - comparison.mean:.3f}"
        lines.append(_row(f"{delay} versions", f"{mean:.1f} ({largest:.0f})", *accuracies, difference))
    return "\n".join(lines) if len(lines) > 2 else NOTHING


def speed_table() -> str:
    """Simulated and predicted seconds a version."""
    lines = [
        _row("mean delay", "synchronous, s", "asynchronous, s", "speed-up", "by the formula", "mean staleness", "used"),
        "|---" * 7 + "|",
    ]
    lines.extend(
        _row(
            f"{row['scale']:g} T",
            f"{row['sync_s']:.2f}",
            f"{row['async_s']:.2f}",
            f"{row['speed_up']:.2f}",
            f"{row['predicted']:.2f}",
            f"{row['mean_staleness']:.1f}",
            f"{row['used']:.1%}",
        )
        for row in _newest(SPEED_UPS)["detail"]["rows"]
    )
    return "\n".join(lines)


def drop_table() -> str:
    """Share of slots lost, by length and by speed."""
    tenths = ("shortest half", "6th", "7th", "8th", "9th", "longest tenth")
    lines = [_row("a mean slot takes the slowest", *SPEEDS, *tenths, "tokens, trained / sampled")]
    lines.append("|---" * (2 + len(SPEEDS) + len(tenths)) + "|")
    for case in DROP_CASES:
        detail = _newest(f"async/drops/{case.name}")["detail"]
        deciles = detail["by_length_decile"]
        order = "" if case.window_slots else ", taken as they arrive"
        unit = "version" if case.slow_slot_versions == 1 else "versions"
        lines.append(
            _row(
                f"{case.slow_slot_versions:g} {unit}{order}",
                *(f"{share:.1%}" for share in detail["by_speed"].values()),
                *(f"{share:.1%}" for share in (statistics.fmean(deciles[:5]), *deciles[5:])),
                f"{detail['mean_tokens_of_trained_over_sampled']:.3f}",
            )
        )
    return "\n".join(lines)


def write(path: Path = DOCUMENT) -> None:
    """Fill every marked place of the document."""
    done = load()
    sort_lr, addition_lr = TASKS["sort-digits"].lr, TASKS["long-addition"].lr
    tables: Mapping[str, Callable[[], str]] = {
        "sort-digits": partial(accuracy_table, "sort-digits", sort_lr, done),
        "long-addition": partial(accuracy_table, "long-addition", addition_lr, done),
        "sort-digits at half the rate": partial(accuracy_table, "sort-digits", sort_lr / 2, done),
        "delays": partial(delay_table, done),
        "speed": speed_table,
        "drops": drop_table,
    }
    text = path.read_text(encoding="utf-8")
    for name, table in tables.items():
        text = fill(text, name, table())
    path.write_text(text, encoding="utf-8")


def fill(text: str, name: str, content: str) -> str:
    """`text` with `content` between the marks of `name`.

    Raises:
        ValueError: no such marks.
    """
    marked = re.compile(rf"(<!-- measured: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if marked.search(text) is None:
        raise ValueError(f"the document has no place marked {name!r}")
    return marked.sub(lambda match: f"{match[1]}\n{content}\n\n{match[2]}", text)


def _newest(name: str) -> dict[str, Any]:
    return {entry["name"]: entry for entry in results()}[name]


def _mean(values: Mapping[int, float]) -> float:
    return statistics.fmean(values.values())


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    write()
