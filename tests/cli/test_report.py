"""summary.json, the picture and the page of samples, from the files that the roles write."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farflung.cli.report.samples import by_version, spread, write_samples
from farflung.cli.report.summary import Summary, summarize
from farflung.cli.report.usage import NodeUsage, Usage, UsageLog, fold
from farflung.cli.report.write import as_text, write_report
from farflung.cli.run_folder import RunFolder
from farflung.telemetry.metrics import MetricsLog, read_metrics
from farflung.wire.node import Heartbeat, NodeStatus, PoolStatus, Role

SUMMARY_KEYS = [
    "initial_accuracy", "final_accuracy", "eval_tasks", "initial_reward", "final_reward",
    "versions", "optimizer_steps", "wall_s", "cpu_s",
    "staleness_mean", "staleness_max", "trainer_idle_ratio", "worker_idle_ratio", "tokens_generated",
    "tokens_accepted", "tokens_trained", "drops", "grading_faults", "seed", "config_digest",
]  # fmt: skip
"""What people's scripts read; never removed or renamed."""


def node(name: str, session: int, busy_s: float, idle_s: float, cpu_s: float, tokens: int = 0) -> dict[str, Any]:
    return {
        "kind": "node", "session": session, "node": name, "role": name.partition("-")[0],
        "busy_s": busy_s, "idle_s": idle_s, "cpu_s": cpu_s, "tokens": tokens,
    }  # fmt: skip


def pool(session: int, wall_s: float, tokens: int, **drops: int) -> dict[str, Any]:
    return {
        "kind": "pool", "session": session, "wall_s": wall_s,
        "tokens_generated": tokens, "tokens_accepted": tokens - 1, "drops": drops,
        "grading_faults": {"sums: timeout": tokens},
    }  # fmt: skip


USAGE = Usage(
    nodes=(
        NodeUsage(name="trainer", role="trainer", busy_s=90, idle_s=10, cpu_s=80, tokens=0),
        NodeUsage(name="worker-1", role="worker", busy_s=80, idle_s=20, cpu_s=70, tokens=5),
        NodeUsage(name="worker-2", role="worker", busy_s=20, idle_s=80, cpu_s=10, tokens=5),
    ),
    wall_s=100.0,
    cpu_s=170.0,
    tokens_generated=1000,
    tokens_accepted=900,
    drops={"expired": 2},
    grading_faults={"sums: timeout": 3},
)


def metrics_rows() -> list[dict[str, Any]]:
    train = [
        {
            "kind": "train", "time_s": 10.0 + v, "version": v, "reward/mean": 0.3 + v / 20, "num_tokens": 50,
            "grad_norm": 1.0, "entropy": 1 / v, "completions/mean_length": 7.0, "mismatch_kl/mean": 0.01,
            "staleness/mean": 1.5, "staleness/max": 2.0, "staleness/histogram": {"1": 8, "2": 8},
            "drops": {"no_signal": 3 * v},
        }
        for v in range(1, 11)
    ]  # fmt: skip
    evals = [
        {"kind": "eval", "time_s": 10.0 + v, "version": v, "accuracy": a, "num_tasks": 512}
        for v, a in ((0, 0.3), (10, 0.9))
    ]
    return [*evals, *train]


def samples_rows() -> list[dict[str, Any]]:
    return [
        {
            "version": version, "task_id": f"heldout/{i}", "prompt": "31>", "completion": "13<script>alert(1)</script>",
            "reward": None if i == 2 else float(i), "correct": None if i == 2 else float(i), "target_length": 0,
        }
        for version in (0, 10)
        for i in range(3)
    ]  # fmt: skip


def test_the_summary_has_exactly_the_documented_keys() -> None:
    assert list(summarize([], fold([]), seed=0, config_digest="ab").to_dict()) == SUMMARY_KEYS


def test_the_summary_of_a_whole_run() -> None:
    assert summarize(metrics_rows(), USAGE, seed=3, config_digest="ab") == Summary(
        initial_accuracy=0.3,
        final_accuracy=0.9,
        eval_tasks=512,
        initial_reward=pytest.approx(0.3 + 3 / 20),
        final_reward=pytest.approx(0.3 + 8 / 20),
        versions=10,
        optimizer_steps=10,
        wall_s=100.0,
        cpu_s=170.0,
        staleness_mean=1.5,
        staleness_max=2,
        trainer_idle_ratio=0.1,
        worker_idle_ratio=0.5,
        tokens_generated=1000,
        tokens_accepted=900,
        tokens_trained=500,
        drops={"no_signal": 30, "expired": 2},
        grading_faults={"sums: timeout": 3},
        seed=3,
        config_digest="ab",
    )


def test_a_run_without_figures_has_nulls_and_zeros_and_no_error() -> None:
    summary = summarize([], fold([]), seed=0, config_digest="ab")
    assert (summary.initial_accuracy, summary.staleness_mean, summary.trainer_idle_ratio) == (None, None, None)
    assert (summary.versions, summary.tokens_trained, summary.drops, summary.grading_faults) == (0, 0, {}, {})


def test_the_trainers_own_totals_win_over_sums_of_rows() -> None:
    progress = {
        "kind": "progress",
        "version": 10,
        "optimizer_steps": 9,
        "tokens_trained": 444,
        "drops": {"no_signal": 31},
    }
    summary = summarize([*metrics_rows(), progress], USAGE, seed=0, config_digest="ab")
    assert (summary.optimizer_steps, summary.tokens_trained, summary.drops["no_signal"]) == (9, 444, 31)


def test_of_a_version_that_was_logged_twice_the_last_row_counts() -> None:
    again = {**metrics_rows()[-1], "num_tokens": 60}
    assert summarize([*metrics_rows(), again], USAGE, seed=0, config_digest="ab").tokens_trained == 510


def test_lives_of_a_process_are_added_up_over_crashes_and_sessions() -> None:
    rows = [
        node("worker-1", 1, 5, 5, 4, 100),
        node("worker-1", 1, 10, 10, 8, 200),
        node("worker-1", 1, 1, 1, 1, 10),  # crashed and started again
        pool(1, 30.0, 210),
        node("worker-1", 2, 2, 2, 2, 20),  # the run was continued: longer-lived than the row before, yet a new life
        pool(2, 12.0, 230, expired=1),
    ]
    usage = fold(rows)
    assert usage.nodes == (NodeUsage(name="worker-1", role="worker", busy_s=13, idle_s=13, cpu_s=11, tokens=230),)
    assert (usage.wall_s, usage.tokens_generated, usage.tokens_accepted, usage.drops) == (
        42.0,
        230,
        229,
        {"expired": 1},
    )
    assert usage.idle_ratio("worker") == 0.5
    assert usage.idle_ratio("trainer") is None


def test_the_account_of_the_system_wins_where_a_session_ended_well() -> None:
    rows = [
        node("worker-1", 1, 5, 5, 4),
        pool(1, 30.0, 9),
        {"kind": "session", "session": 1, "wall_s": 31.0, "cpu_s": 20.0},
    ]
    assert (fold(rows).wall_s, fold(rows).cpu_s) == (31.0, 20.0)


def test_statuses_are_booked_every_few_seconds(tmp_path: Path) -> None:
    path, now_s = tmp_path / "pool.jsonl", [50.0]
    log = UsageLog(metrics=MetricsLog(path), session=7, now=lambda: now_s[0])
    beat = Heartbeat(
        node="worker-1", role=Role.WORKER, policy_version=1, activity="x", busy_s=3, idle_s=1, cpu_s=2, tokens=10
    )
    status = PoolStatus(
        pool="p", policy_version=1, nodes=(NodeStatus(heartbeat=beat, last_seen_ms=0, is_alive=True),), slots={},
        drops={}, tokens_generated=10, tokens_accepted=10, outstanding_groups=0, is_finished=False,
    )  # fmt: skip
    for at_s in (50.0, 51.0, 56.0):
        log.add(status, at_s)
    now_s[0] = 60.0
    log.end()
    rows = read_metrics(path)
    assert [row["kind"] for row in rows] == ["node", "pool", "node", "pool", "session"]
    assert {row["session"] for row in rows} == {7}
    assert fold(rows).wall_s == 10.0
    assert rows[-1]["cpu_s"] > 0


def test_a_report_is_written_whole_and_its_paths_are_told(tmp_path: Path) -> None:
    folder = RunFolder(root=tmp_path / "demo")
    folder.root.mkdir()
    folder.metrics.write_text("".join(json.dumps(row) + "\n" for row in metrics_rows()))
    folder.usage.write_text("".join(json.dumps(row) + "\n" for row in [node("trainer", 1, 9, 1, 8), pool(1, 10.0, 9)]))
    folder.samples.write_text("".join(json.dumps(row) + "\n" for row in samples_rows()))
    summary = write_report(folder, title="demo", seed=0, config_digest="ab")
    assert json.loads(folder.summary.read_text()) == summary.to_dict()
    assert folder.curves.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert sorted(path.name for path in folder.root.iterdir()) == [
        "curves.png", "metrics.jsonl", "pool.jsonl", "samples.html", "samples.jsonl", "summary.json",
    ]  # fmt: skip
    text = as_text(summary, folder)
    assert text.splitlines()[:2] == [
        "reward 0.450 -> 0.700 (first and last 5 batches; the loss stays near 0 and says nothing)",
        "held-out accuracy 0.300 -> 0.900 (512 tasks)",
    ]
    assert "10 versions in 10 s" in text
    assert str(folder.curves) in text
    assert str(folder.model) not in text  # it is not there


def test_versions_that_were_lost_are_in_no_summary() -> None:
    rows = [{"kind": "train", "version": version, "num_tokens": 10} for version in range(1, 9)]
    rows.append({"kind": "stepped_back", "version": 4, "from_version": 8})
    summary = summarize(rows, fold([]), seed=0, config_digest="ab")
    assert (summary.versions, summary.tokens_trained) == (4, 40)


def test_a_local_run_has_samplers_and_no_workers(tmp_path: Path) -> None:
    summary = replace(summarize([], fold([]), seed=0, config_digest="ab"), worker_idle_ratio=0.25)
    waited = "time spent waiting for others: "
    assert f"{waited}workers 25 %" in as_text(summary, RunFolder(root=tmp_path))
    assert f"{waited}samplers 25 %" in as_text(summary, RunFolder(root=tmp_path), is_local=True)


@pytest.mark.parametrize(
    ("change", "is_hinted"),
    [
        ({}, True),
        ({"final_accuracy": 0.1}, False),
        ({"final_accuracy": None}, False),
        ({"tokens_trained": 500}, False),
        ({"drops": {"stale": 90}}, False),
    ],
)
def test_a_run_that_had_nothing_to_reinforce_is_told_what_to_do(
    tmp_path: Path, change: dict[str, Any], is_hinted: bool
) -> None:
    hopeless = {"final_accuracy": 0.0, "drops": {"no_signal": 90}, "tokens_accepted": 1000, "tokens_trained": 50}
    summary = replace(summarize([], fold([]), seed=0, config_digest="ab"), **(hopeless | change))
    text = as_text(summary, RunFolder(root=tmp_path))
    assert ("set trainer.warm_start.max_steps, or start from another model" in text) == is_hinted


def test_u2_what_went_wrong_on_the_way_is_told_with_its_cause(tmp_path: Path) -> None:
    summary = summarize([], fold([]), seed=0, config_digest="ab")
    events = ["worker-2 was killed by SIGKILL (out of memory?)\x1b[2J", *["again"] * 9]
    lines = as_text(summary, RunFolder(root=tmp_path), events).splitlines()
    start = lines.index("on the way:")
    assert lines[start + 1] == "  worker-2 was killed by SIGKILL (out of memory?)?[2J"
    assert lines[start + 9] == f"  and 2 more, in {tmp_path / 'logs'}"


def test_seconds_of_other_peoples_machines_are_not_ours(tmp_path: Path) -> None:
    log = UsageLog(metrics=MetricsLog(tmp_path / "pool.jsonl"), own=frozenset({"worker-1"}))
    beats = [
        Heartbeat(node=name, role=Role.WORKER, policy_version=1, activity="x", busy_s=3, idle_s=1, cpu_s=cpu_s)
        for name, cpu_s in (("worker-1", 2e6), ("attic", 5e6))
    ]
    log.add(
        PoolStatus(
            pool="p", policy_version=1, slots={}, drops={}, tokens_generated=0, tokens_accepted=0,
            nodes=tuple(NodeStatus(heartbeat=beat, last_seen_ms=0, is_alive=True) for beat in beats),
            outstanding_groups=0, is_finished=False,
        ),
        0.0,
    )  # fmt: skip
    log.end()
    usage = fold(read_metrics(tmp_path / "pool.jsonl"))
    assert usage.cpu_s == 2e6
    assert [each.name for each in usage.nodes] == ["attic", "worker-1"]


def test_a_report_of_nothing_is_no_error(tmp_path: Path) -> None:
    folder = RunFolder(root=tmp_path)
    write_report(folder, title="empty", seed=0, config_digest="ab")
    assert folder.curves.exists()
    assert "the run ended before its first evaluation" in folder.samples_page.read_text()


def test_text_of_a_model_never_becomes_markup(tmp_path: Path) -> None:
    page = tmp_path / "samples.html"
    write_samples(page, samples_rows(), title="<b>title</b>")
    html = page.read_text()
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "&lt;b&gt;title&lt;/b&gt;" in html
    assert html.count("<details open>") == 2
    assert html.count("not graded") == 2
    assert "http" not in html.replace("http-equiv", "")  # needs nothing from elsewhere


def test_of_many_versions_the_first_the_last_and_some_between_are_shown() -> None:
    versions = by_version({"version": v, "reward": 0.5} for v in range(1000))
    shown = spread(versions, 5)
    assert [item.version for item in shown] == [0, 250, 500, 749, 999]
    assert shown[0].mean_reward == 0.5


@pytest.mark.parametrize("count", [0, 1, 3])
def test_few_versions_are_all_shown(count: int) -> None:
    versions = by_version({"version": v, "reward": None} for v in range(count))
    assert spread(versions, 5) == versions


def test_a_life_that_worked_more_and_waited_less_than_the_one_before_is_another_life() -> None:
    rows = [node("worker-1", 1, 2, 10, 2), node("worker-1", 1, 13, 1, 13)]
    (found,) = fold(rows).nodes
    assert (found.busy_s, found.idle_s) == (15, 11)


def test_a_total_of_0_is_a_total() -> None:
    progress = {"kind": "progress", "version": 10, "optimizer_steps": 0, "tokens_trained": 0}
    summary = summarize([*metrics_rows(), progress], USAGE, seed=0, config_digest="ab")
    assert (summary.optimizer_steps, summary.tokens_trained) == (0, 0)
