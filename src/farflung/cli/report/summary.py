"""The figures of a whole run: what `summary.json` says."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from farflung.cli.report.usage import Usage
from farflung.cli.view.state import merged_drops
from farflung.telemetry.metrics import as_it_stands

NUM_REWARD_VERSIONS = 5
"""One batch is small, so its mean reward jumps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Keys of `summary.json`, all always there; null where a run was too short to have the figure."""

    initial_accuracy: float | None
    """Share of held-out tasks solved by the first version, 0 to 1."""
    final_accuracy: float | None
    """The same by the last version that was evaluated."""
    eval_tasks: int
    """Held-out tasks of an evaluation, one rollout each."""
    initial_reward: float | None
    """Mean reward of the first `NUM_REWARD_VERSIONS` batches."""
    final_reward: float | None
    """The same of the last ones."""
    versions: int
    """Policy versions published by training, the first policy not counted."""
    optimizer_steps: int
    wall_s: float
    """Seconds from start to end, over all sessions of a run that was continued."""
    cpu_s: float
    """CPU seconds of all processes on this machine."""
    staleness_mean: float | None
    """Versions between sampling and training, mean over the rollouts trained on."""
    staleness_max: int | None
    trainer_idle_ratio: float | None
    """Share of its time that the trainer waited for rollouts, 0 to 1."""
    worker_idle_ratio: float | None
    """Share of their time that the workers waited for a policy, a lease or a receipt, 0 to 1."""
    tokens_generated: int
    """Completion tokens submitted."""
    tokens_accepted: int
    """Completion tokens of accepted submissions."""
    tokens_trained: int
    """Completion tokens that carried a gradient."""
    drops: dict[str, int]
    """Reason -> groups that were not trained on."""
    grading_faults: dict[str, int]
    """Environment and what went wrong -> completions that could not be graded."""
    seed: int
    config_digest: str
    """Hex digest of the resolved configuration."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarize(metrics: Iterable[Mapping[str, Any]], usage: Usage, *, seed: int, config_digest: str) -> Summary:
    """Fold the rows of metrics.jsonl and the account of usage.

    Of several rows for one version (a run that was continued) the last counts; of versions that were lost, none.
    """
    rows = as_it_stands(metrics)
    train = _by_version(rows, "train")
    evals = [row for row in _by_version(rows, "eval") if row.get("accuracy") is not None]
    last_progress = ([{}, *_by_version(rows, "progress")])[-1]
    return Summary(
        initial_accuracy=float(evals[0]["accuracy"]) if evals else None,
        final_accuracy=float(evals[-1]["accuracy"]) if evals else None,
        eval_tasks=int(evals[-1].get("num_tasks") or 0) if evals else 0,
        initial_reward=_mean_reward(train[:NUM_REWARD_VERSIONS]),
        final_reward=_mean_reward(train[-NUM_REWARD_VERSIONS:]),
        versions=len(train),
        optimizer_steps=_total(
            last_progress, "optimizer_steps", sum(1 for row in train if row.get("grad_norm") is not None)
        ),
        wall_s=usage.wall_s,
        cpu_s=usage.cpu_s,
        staleness_mean=_staleness_mean(train),
        staleness_max=max(
            (int(row["staleness/max"]) for row in train if row.get("staleness/max") is not None), default=None
        ),
        trainer_idle_ratio=usage.idle_ratio("trainer"),
        worker_idle_ratio=usage.idle_ratio("worker"),
        tokens_generated=usage.tokens_generated,
        tokens_accepted=usage.tokens_accepted,
        tokens_trained=_total(last_progress, "tokens_trained", sum(int(row.get("num_tokens") or 0) for row in train)),
        drops=merged_drops(usage.drops, [*train, last_progress]),
        grading_faults=dict(usage.grading_faults),
        seed=seed,
        config_digest=config_digest,
    )


def _total(progress: Mapping[str, Any], name: str, otherwise: int) -> int:
    """What the trainer said when it ended, 0 included; the sum over versions while it has not."""
    return otherwise if progress.get(name) is None else int(progress[name])


MAX_STALENESS_SHOWN = 10_000
"""Versions; what says more is damaged."""


def staleness_histogram(train: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Staleness -> rollouts trained on, over the whole run, ascending."""
    counts: dict[int, int] = {}
    for row in train:
        for staleness, count in histogram_of(row).items():
            counts[staleness] = counts.get(staleness, 0) + count
    return dict(sorted(counts.items()))


def histogram_of(row: Mapping[str, Any]) -> dict[int, int]:
    """Staleness -> rollouts of one version; empty where the row has none that can be read."""
    found = row.get("staleness/histogram")
    counts: dict[int, int] = {}
    for staleness, count in found.items() if isinstance(found, dict) else ():
        with suppress(ValueError, TypeError, OverflowError):
            counts[int(float(staleness))] = max(0, int(count))
    return {staleness: count for staleness, count in counts.items() if 0 <= staleness <= MAX_STALENESS_SHOWN}


def _by_version(rows: Iterable[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    by_version = {int(row["version"]): row for row in rows if row["kind"] == kind and row.get("version") is not None}
    return [by_version[version] for version in sorted(by_version)]


def _mean_reward(train: list[Mapping[str, Any]]) -> float | None:
    rewards = [float(row["reward/mean"]) for row in train if row.get("reward/mean") is not None]
    return sum(rewards) / len(rewards) if rewards else None


def _staleness_mean(train: list[Mapping[str, Any]]) -> float | None:
    counts = staleness_histogram(train)
    num_rollouts = sum(counts.values())
    if num_rollouts:
        return sum(staleness * count for staleness, count in counts.items()) / num_rollouts
    means = [float(row["staleness/mean"]) for row in train if row.get("staleness/mean") is not None]
    return sum(means) / len(means) if means else None
