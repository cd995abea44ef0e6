"""What thinking budgets cost, and how well they are kept: comparisons on three seeds, and a picture.

    python -m benchmarks.budgets [dots | frontier | picture] ...

    dots       length and being right do not compete: digits to sort after as many dots as the prompt asks for. How
               far is a completion from its target after the warm start, and after reinforcement?
               Also: a small fixed set of targets beside every number in the same range, at equal compute (INTELLECT-2
               says that the fixed set is easier, arXiv 2505.07291).
    frontier   they compete: `mod-sum`, where fewer steps are harder arithmetic. Error of length and accuracy over
               alpha, the reward lost per step beside the target, and accuracy by budget.

Rows of each run go to `budgets.jsonl`, means to `results.jsonl`.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.budget_runs import Bench, Score, Task
from benchmarks.record import record
from farflung.envs.registry import load_environment
from farflung.evaluation.heldout import EvaluatedRollout
from farflung.trainer.config import ShapingConfig
from farflung.wire.pool import EnvArg

ROWS = Path(__file__).with_name("budgets.jsonl")
SEEDS = (0, 1, 2)
NUM_VERSIONS = 150
ALPHAS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
TOKEN_ALPHA = 0.05
"""Reward per token: a right answer is worth twenty tokens."""
FIXED, ANY = "8,16,24,32", "8..32"


def _steps(rollout: EvaluatedRollout) -> float:
    """Steps beside the target; a malformed scratchpad counts as the worst one and one more."""
    return rollout.grade.components["length_error"]


def _tokens(rollout: EvaluatedRollout) -> float:
    return abs(rollout.num_tokens - rollout.task.target_length)


MOD_SUM = Task(
    env="mod-sum",
    args={"num_digits": 6, "base": 5, "corr": 0.4},
    warm_steps=600,
    warm_accuracy=0.45,
    max_completion_tokens=32,
    error=_steps,
)


def _dots(targets: str) -> Task:
    return Task(
        env="budgeted:sort-digits",
        args={
            "num_digits": 4,
            "budget.targets": targets,
            "budget.told": "{target}:",
            "budget.where": "start",
            "budget.after": "|",
            "budget.filler": ".",
            "budget.honours": 0.3,
        },
        warm_steps=600,
        warm_accuracy=0.45,
        max_completion_tokens=48,
        error=_tokens,
    )


def dots() -> None:
    """Reward: right or wrong, minus alpha per token beside the target. Both kinds are judged on the fixed set."""
    fixed = [_dots_row(seed, FIXED, FIXED) for seed in SEEDS]
    ranged = [_dots_row(seed, ANY, FIXED) for seed in SEEDS]
    shared = {
        "task": "four digits to sort after thinking in dots, told to take 8, 16, 24 or 32 tokens in all",
        "reward": f"1 if right, minus {TOKEN_ALPHA} per token",
        "error, each seed": _pairs(fixed, "length_error"),
        "accuracy, each seed": _pairs(fixed, "accuracy"),
        **_shared(fixed),
    }
    record(
        "budgets/free/error",
        mean(row["after"]["length_error"] for row in fixed),
        mean(row["before"]["length_error"] for row in fixed),
        "the same policy after its warm start",
        "mean |target - length|, tokens",
        detail=shared,
    )
    record(
        "budgets/targets/fixed set beside range",
        mean(row["after"]["length_error"] for row in fixed),
        mean(row["after"]["length_error"] for row in ranged),
        "every number from 8 to 32",
        "mean |target - length|, tokens, on 8, 16, 24 and 32",
        detail={
            **shared,
            "range, each seed": _pairs(ranged, "length_error"),
            "range on its own targets, each seed": _pairs([row["own"] for row in ranged], "length_error"),
            "accuracy, range": _pairs(ranged, "accuracy"),
        },
    )


def frontier() -> None:
    benches = {seed: Bench(MOD_SUM, seed) for seed in SEEDS}
    for alpha in ALPHAS:
        rows = [_frontier_row(benches[seed], alpha) for seed in SEEDS]
        by_target = [row["after"]["accuracy_by_target"] for row in rows]
        record(
            f"budgets/frontier/alpha {alpha:g}",
            mean(row["after"]["length_error"] for row in rows),
            mean(row["before"]["length_error"] for row in rows),
            "the same policy after its warm start",
            "mean |target - length|, steps",
            detail={
                "accuracy": f"{mean(row['after']['accuracy'] for row in rows):.3f}",
                "accuracy by budget": ", ".join(
                    f"{target} steps {mean(each[target] for each in by_target):.3f}" for target in by_target[0]
                ),
                "error, each seed": _pairs(rows, "length_error"),
                "accuracy, each seed": _pairs(rows, "accuracy"),
                **_shared(rows),
            },
        )


def _dots_row(seed: int, trained_on: str, judged_on: str) -> dict[str, Any]:
    task = _dots(trained_on)
    bench = Bench(task, seed)
    judge = load_environment(task.env, seed, {**task.args, "budget.targets": judged_on})
    before = bench.score(bench.start_policy(), judge)
    policy, cpu_s = bench.run(NUM_VERSIONS, shaping=ShapingConfig(length="exact", length_alpha=TOKEN_ALPHA))
    own = {"before": asdict(bench.before), "after": asdict(bench.score(policy, bench.environment))}
    return _row("dots", seed, {"targets": trained_on}, before, bench.score(policy, judge), cpu_s, {"own": own})


def _frontier_row(bench: Bench, alpha: float) -> dict[str, Any]:
    policy, cpu_s = bench.run(NUM_VERSIONS, args={"alpha": alpha})
    after = bench.score(policy, bench.environment)
    return _row("mod-sum", bench.seed, {"alpha": alpha}, bench.before, after, cpu_s)


def _row(
    task: str,
    seed: int,
    varied: Mapping[str, EnvArg],
    before: Score,
    after: Score,
    cpu_s: float,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    row = {
        "task": task, "seed": seed, **varied, "cpu_s": round(cpu_s, 1), "before": asdict(before),
        "after": asdict(after), **(more or {}),
    }  # fmt: skip
    with ROWS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(
        f"{task} {varied} seed {seed}: error {before.length_error:.2f} -> {after.length_error:.2f}, "
        f"accuracy {before.accuracy:.3f} -> {after.accuracy:.3f}, {cpu_s:.0f} CPU-s",
        flush=True,
    )
    return row


def _pairs(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    return ", ".join(f"{row['before'][name]:.3f} -> {row['after'][name]:.3f}" for row in rows)


def _shared(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {
        "versions": f"{NUM_VERSIONS} of 32 groups of 8, synchronous",
        "seeds": ", ".join(map(str, SEEDS)),
        "CPU seconds of a run": f"{mean(row['cpu_s'] for row in rows):.0f} beside the warm start",
    }


def main() -> None:
    from benchmarks.budgets_plot import plot  # matplotlib takes a while to import

    parts = {"dots": dots, "frontier": frontier, "picture": plot}
    for name in sys.argv[1:] or parts:
        parts[name]()


if __name__ == "__main__":
    main()
