import json
from dataclasses import replace
from pathlib import Path

import pytest

from farflung.envs.base import Grade
from farflung.evaluation.heldout import EvaluatedRollout, Evaluation
from farflung.telemetry.metrics import read_metrics
from farflung.trainer.figures import Figures, Laps, drops
from farflung.trainer.learner import Learner
from tiny_pool import batch_of, environment, pool_spec, reserved, sampled_groups, tiny_policy, trainer_config


def an_evaluation(num_tasks: int = 3) -> Evaluation:
    rollouts = tuple(
        EvaluatedRollout(
            task=environment().task("heldout", index),
            completion=f"completion {index}",
            num_tokens=2,
            grade=Grade(reward=float(index), correct=None),
        )
        for index in range(num_tasks)
    )
    return Evaluation(
        accuracy=0.5, mean_reward=1.0, mean_length_tokens=2.0, num_tasks=num_tasks, num_ungraded=1, rollouts=rollouts
    )


def rows(folder: Path) -> list[dict[str, object]]:
    return [
        {key: value for key, value in row.items() if key != "time_s"} for row in read_metrics(folder / "metrics.jsonl")
    ]


def test_members_of_a_mixture_have_an_accuracy_each(tmp_path: Path) -> None:
    Figures(tmp_path, num_samples=0).evaluation(7, replace(an_evaluation(), accuracies={"easy": 0.75, "hard": 0.25}))
    (row,) = rows(tmp_path)
    assert (row["accuracy/easy"], row["accuracy/hard"]) == (0.75, 0.25)


def test_an_evaluation_is_one_row_and_a_few_samples(tmp_path: Path) -> None:
    figures = Figures(tmp_path, num_samples=2)
    figures.evaluation(7, an_evaluation())
    assert rows(tmp_path) == [
        {
            "kind": "eval",
            "version": 7,
            "accuracy": 0.5,
            "mean_reward": 1.0,
            "mean_length": 2.0,
            "num_tasks": 3,
            "num_ungraded": 1,
        }
    ]
    samples = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    task = environment().task("heldout", 0)
    assert len(samples) == 2
    assert samples[0] == {
        "version": 7,
        "task_id": task.task_id,
        "prompt": task.messages[0].content,
        "completion": "completion 0",
        "reward": 0.0,
        "correct": None,
        "target_length": 0,
    }
    figures.evaluation(8, an_evaluation())
    assert len((tmp_path / "samples.jsonl").read_text().splitlines()) == 4


def test_a_version_is_one_row_with_staleness_times_and_drops(tmp_path: Path) -> None:
    learner = Learner(tiny_policy(), trainer_config(), pool_spec(), reserved())
    batch = batch_of(
        sampled_groups(tiny_policy(), pool_spec(), slot=0, version=2),
        sampled_groups(tiny_policy(), pool_spec(), slot=1, version=3),
        version=3,
    )
    Figures(tmp_path, 0).version(4, batch, learner.learn(batch), {"time/step_s": 1.5}, {"stale": 2})
    (row,) = rows(tmp_path)
    assert (row["kind"], row["version"], row["time/step_s"], row["drops"]) == ("train", 4, 1.5, {"stale": 2})
    assert row["staleness/histogram"] == {"0": 8, "1": 8}
    assert {"reward/mean", "policy_loss", "grad_norm", "learning_rate", "entropy"} <= row.keys()


def test_the_other_rows(tmp_path: Path) -> None:
    figures = Figures(tmp_path, 0)
    figures.warm_start(5, 1.25, 0.1)
    figures.rollback(3, "canary")
    figures.progress(9, {"tokens_trained": 7, "drops": {"stale": 1}})
    assert rows(tmp_path) == [
        {"kind": "warm_start", "step": 5, "loss": 1.25, "accuracy": 0.1},
        {"kind": "rollback", "version": 3, "reason": "canary"},
        {"kind": "progress", "version": 9, "tokens_trained": 7, "drops": {"stale": 1}},
    ]


def test_a_disk_that_takes_no_figures_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    (tmp_path / "samples.jsonl").mkdir()
    Figures(tmp_path, 2).evaluation(0, an_evaluation())
    assert "samples are lost" in caplog.text
    assert "metrics are lost" in caplog.text


def test_laps_sum_to_the_whole_and_leave_no_gap() -> None:
    times = iter([10.0, 11.0, 15.0, 15.5, 17.5, 18.5])
    laps = Laps(lambda: next(times))
    laps.end("wait_for_batch")
    laps.end("train")
    assert laps.take() == {"time/step_s": 5.0, "time/wait_for_batch_s": 1.0, "time/train_s": 4.0}
    for part in ("publish", "wait_for_batch", "wait_for_batch"):
        laps.end(part)
    assert laps.take() == {"time/step_s": 3.5, "time/publish_s": 0.5, "time/wait_for_batch_s": 3.0}


def test_drops_are_groups_of_accepted_slots_by_reason() -> None:
    buffer = {
        "buffer/waiting_slots": 5,
        "buffer/admitted": 9,
        "buffer/trained": 4,
        "buffer/dropped/stale": 2,
        "buffer/dropped/canary": 1,
        "buffer/closed/rejected": 3,
        "buffer/closed/settled": 100,
    }
    assert drops({"no_signal": 5, "stale": 1}, buffer, groups_per_slot=4) == {
        "no_signal": 5,
        "stale": 1 + 4 * 2,
        "canary": 4,
    }
