"""What `farflung eval` says of its samples: figures with intervals, of all tasks and by difficulty.

    all tasks    avg@n, pass@k, maj@k, lengths, what was cut off or not graded
    by level     the same scores of the tasks of each level (`envs.base.level_of`), where the environment tells levels

Does not know models or files.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from farflung.evaluation.records import SampleRow
from farflung.evaluation.scores import Estimate, avg_at, maj_at, pass_at


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Of one evaluation."""

    env: str
    split: str
    num_samples: int
    """Per task."""
    ks: tuple[int, ...]
    """For pass@k and maj@k, ascending."""

    def result(self, rows: Sequence[SampleRow], num_skipped: int) -> dict[str, Any]:
        """Everything as plain JSON types.

        Args:
            num_skipped: tasks whose prompt is too long.
        """
        by_level = levels_of(rows)
        return {
            "env": self.env,
            "split": self.split,
            **self._figures(rows),
            "num_prompts_too_long": num_skipped,
            **({"by_level": {level: self._figures(own) for level, own in by_level.items()}} if by_level else {}),
        }

    def tables(self, rows: Sequence[SampleRow], num_skipped: int) -> list[Table]:
        tables = [self._table(rows, num_skipped)]
        by_level = levels_of(rows)
        return [*tables, self._table_by_level(by_level)] if by_level else tables

    def _figures(self, rows: Sequence[SampleRow]) -> dict[str, Any]:
        return {
            "num_tasks": len({row.task for row in rows}),
            "num_samples": len(rows),
            "num_ungraded": sum(row.correct is None for row in rows),
            "truncated_share": _mean([float(row.is_truncated) for row in rows]),
            "mean_length_tokens": _mean([float(row.num_tokens) for row in rows]),
            "mean_reward": _mean([row.reward for row in rows if row.reward is not None]),
            **{name: asdict(estimate) for name, estimate in self._estimates(rows).items()},
        }

    def _estimates(self, rows: Sequence[SampleRow]) -> dict[str, Estimate]:
        from farflung.evaluation.benchmark import task_samples  # imports the engine

        tasks = task_samples(rows)
        estimates = {f"avg@{self.num_samples}": avg_at(tasks)}
        for k in self.ks:
            if k > 1:
                estimates |= {f"pass@{k}": pass_at(tasks, k), f"maj@{k}": maj_at(tasks, k)}
        return estimates

    def _table(self, rows: Sequence[SampleRow], num_skipped: int) -> Table:
        result = self.result(rows, num_skipped)
        title = f"{self.env}, {self.split}: {result['num_tasks']} tasks"
        table = _empty_table(title, ["figure", "value", "95 % interval"])
        for name, estimate in self._estimates(rows).items():
            table.add_row(name, f"{estimate.value:.3f}", f"{estimate.low:.3f} to {estimate.high:.3f}")
        table.add_row("mean length, tokens", f"{result['mean_length_tokens']:.1f}", "")
        table.add_row("cut off at the limit", f"{result['truncated_share']:.1%}", "")
        for name, words in (("num_ungraded", "samples without a grade"), ("num_prompts_too_long", "prompts too long")):
            if result[name]:
                table.add_row(words, str(result[name]), "")
        return table

    def _table_by_level(self, by_level: dict[str, list[SampleRow]]) -> Table:
        names = list(self._estimates([]))
        avg = names[0]
        table = _empty_table("by difficulty", ["level", "tasks", avg, "95 % interval", *names[1:], "tokens"])
        for level, rows in by_level.items():
            estimates = self._estimates(rows)
            first = estimates[avg]
            table.add_row(
                level,
                str(len({row.task for row in rows})),
                f"{first.value:.3f}",
                f"{first.low:.3f} to {first.high:.3f}",
                *(f"{estimates[name].value:.3f}" for name in names[1:]),
                f"{_mean([float(row.num_tokens) for row in rows]):.0f}",
            )
        return table


def levels_of(rows: Sequence[SampleRow]) -> dict[str, list[SampleRow]]:
    """Rows by level, numbers in levels in their order; empty unless there are at least two levels."""
    found: dict[str, list[SampleRow]] = {}
    for row in rows:
        found.setdefault(row.level or "not known", []).append(row)
    return {level: found[level] for level in sorted(found, key=_natural)} if len(found) > 1 else {}


def _natural(level: str) -> list[tuple[int, str]]:
    """So that 2 comes before 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]{1,18})", level)]


def _empty_table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, box=None, padding=(0, 2))
    for column in columns:
        table.add_column(column, justify="left" if column == columns[0] else "right")
    return table


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
