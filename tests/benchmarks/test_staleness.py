"""What counts as equivalent, and which runs belong together."""

import json
from pathlib import Path

import pytest
from benchmarks.staleness import SEEDS, Arm, Comparison, by_seed, compare, load, plan

ARM = Arm(task="sort-digits", objective="naive", staleness=4, lr=5e-4, seed=0)


def test_the_interval_is_of_paired_differences() -> None:
    reference = {0: 0.90, 1: 0.80, 2: 0.70, 3: 0.60, 4: 0.50}
    values = {0: 0.89, 1: 0.80, 2: 0.69, 3: 0.60, 4: 0.47}
    comparison = compare(values, reference)
    # differences -0.01, 0, -0.01, 0, -0.03: mean -0.01, standard deviation 0.012247, t 2.132 with 4 degrees of freedom
    assert comparison.mean == pytest.approx(-0.01)
    assert comparison.low == pytest.approx(-0.01 - 2.132 * 0.0122474 / 5**0.5, abs=1e-6)
    assert comparison.finding == "equivalent"


@pytest.mark.parametrize(
    ("low", "high", "finding"),
    [
        (-0.03, 0.03, "equivalent"),
        (-0.031, 0.0, "not shown"),
        (-0.2, -0.031, "worse"),
        (0.031, 0.2, "better"),
        (-0.2, 0.2, "not shown"),
    ],
)
def test_the_finding_follows_from_the_interval_alone(low: float, high: float, finding: str) -> None:
    assert Comparison(mean=(low + high) / 2, low=low, high=high).finding == finding


def test_one_seed_gives_no_interval() -> None:
    with pytest.raises(ValueError, match="1 seeds in common"):
        compare({0: 0.5, 1: 0.4}, {0: 0.5})


def test_every_planned_run_has_a_key_of_its_own_and_every_arm_all_seeds() -> None:
    arms = list(plan())
    assert len({arm.key for arm in arms}) == len(arms)
    assert len(arms) % len(SEEDS) == 0
    references = {(arm.task, arm.lr) for arm in arms if arm.staleness == 0}
    assert {(arm.task, arm.lr) for arm in arms} == references


def test_finished_runs_are_found_again_and_a_torn_last_line_is_not(tmp_path: Path) -> None:
    path = tmp_path / "staleness.jsonl"
    line = {"key": ARM.key, "accuracy": 0.75}
    path.write_text(json.dumps(line) + "\n" + json.dumps({**line, "key": "other"})[:-3])
    done = load(path)
    assert list(done) == [ARM.key]
    assert by_seed(done, ARM) == {0: 0.75}
