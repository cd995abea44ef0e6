"""`farflung plot`: whatever a run has left, there is a picture or a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from farflung.cli import main
from farflung.cli.plot.axis import positions, time_unit
from farflung.cli.plot.bars import draw_staleness, draw_without_gradient
from farflung.cli.plot.families import Family, Look, families
from farflung.cli.plot.lines import Series, draw_lines, smooth
from farflung.cli.plot.panels import PANELS, metrics_of
from farflung.cli.plot.runs import Run, read_run
from farflung.cli.plot.waits import ACTIVITY_COLOURS, WAITING, draw_timeline, draw_waits

PNG = b"\x89PNG\r\n\x1a\n"


def train(version: int, **figures: Any) -> dict[str, Any]:
    return {
        "time_s": 1000.0 + 3 * version, "kind": "train", "version": version, "reward/mean": version / 10,
        "completions/num_tokens": 64.0, "grad_norm": 0.5, "staleness/histogram": {"0": 3, "2": 5},
        "time/train_s": 0.2, "time/publish_s": 0.1, "drops": {"no_signal": 4 * version}, **figures,
    }  # fmt: skip


def node(time_s: float, name: str, busy_s: float, idle_s: float, session: int = 1) -> dict[str, Any]:
    return {"time_s": time_s, "kind": "node", "session": session, "node": name, "role": "worker", "busy_s": busy_s,
            "idle_s": idle_s, "cpu_s": 0.0, "tokens": 0, "activity": "x"}  # fmt: skip


def a_run(path: Path, rows: list[dict[str, Any]], nodes: list[dict[str, Any]] = (), tail: str = "") -> Path:  # type: ignore[assignment]
    path.mkdir(parents=True)
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    (path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in nodes))
    return path


def alone(run: Run) -> list[Family]:
    return families([run], False)


def activity(node: str, *spans: tuple[str, float, float]) -> list[dict[str, Any]]:
    return [
        {"time_s": end_s, "kind": "activity", "node": node, "activity": what, "start_s": start_s, "end_s": end_s}
        for what, start_s, end_s in spans
    ]


def evaluation(version: int, accuracy: float) -> dict[str, Any]:
    return {"time_s": 1000.0 + 3 * version, "kind": "eval", "version": version, "accuracy": accuracy}


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    rows = [evaluation(0, 0.2), *(train(version) for version in range(1, 9)), evaluation(8, 0.7)]
    beats = [node(1000.0 + 5 * i, name, 4.0 * i, 1.0 * i) for i in range(5) for name in ("w-1", "w-2")]
    return a_run(tmp_path / "demo", rows, beats)


def test_a_run_becomes_one_page_beside_it(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["plot", str(demo)]) == 0
    assert (demo / "plot.png").read_bytes().startswith(PNG)
    assert capsys.readouterr().out == f"{demo / 'plot.png'}\n"


@pytest.mark.parametrize("suffix", ["svg", "pdf", "png"])
def test_every_picture_as_a_file_of_its_own(demo: Path, tmp_path: Path, suffix: str) -> None:
    words = ["--metrics", "reward,staleness,entropy", "--format", suffix]
    assert main.main(["plot", str(demo), "--each", str(tmp_path / "each"), *words]) == 0
    assert {path.name for path in (tmp_path / "each").iterdir()} == {  # the run has no entropy
        f"reward.{suffix}",
        f"staleness.{suffix}",
    }


@pytest.mark.parametrize("axis", ["versions", "steps", "time", "samples", "tokens"])
def test_every_axis_runs(demo: Path, tmp_path: Path, axis: str) -> None:
    words = ["--metrics", "reward,accuracy,staleness-over,dropped", "--x", axis]
    assert main.main(["plot", str(demo), *words, "--out", str(tmp_path / "o.png")]) == 0


def test_what_stands_on_the_axes(demo: Path) -> None:
    run = read_run(demo)
    fourth = run.train[3]
    assert [positions(run, axis)(fourth) for axis in ("versions", "time", "samples", "tokens")] == [4, 12 / 60, 32, 256]
    assert positions(run, "samples")(run.evals[0]) == 0


def test_several_runs_share_the_axes_and_seeds_become_a_band(tmp_path: Path) -> None:
    paths = [
        a_run(tmp_path / f"exp-{seed}", [train(v, **{"reward/mean": seed + v}) for v in range(1, 5 + seed)])
        for seed in range(3)
    ]
    words = ["--group", "--metrics", "reward,staleness-over,staleness,dropped,step-time,waits"]
    assert main.main(["plot", *map(str, paths), *words, "--out", str(tmp_path / "o.png")]) == 0
    runs = [read_run(path) for path in paths]
    (family,) = families(runs, is_grouped=True)
    assert (family.name, family.label) == ("exp", "exp (mean and range of 3)")
    axes = Figure().subplots()
    assert draw_lines(axes, [family], [Series(metric="reward/mean")], Look(smoothing=0.0))
    (line,) = axes.get_lines()
    xs, ys = line.get_data()
    assert (min(xs), max(xs)) == (1, 4)  # where all of them are
    assert ys[0] == pytest.approx(2.0)  # the mean of 1, 2, 3
    (band,) = axes.collections
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(6.0)  # the highest of 4, 5, 6


def test_of_several_rows_of_one_version_the_last_counts(tmp_path: Path) -> None:
    run = read_run(a_run(tmp_path / "r", [train(1), train(2), train(2, **{"reward/mean": 0.9}), train(3)]))
    assert [row["reward/mean"] for row in run.train] == [0.1, 0.9, 0.3]


@pytest.mark.parametrize(
    "rows",
    [
        [train(1, **{"reward/mean": None, "staleness/histogram": None, "drops": None})],
        [train(1, **{"reward/mean": "x", "grad_norm": True, "time/train_s": []})],
        [{"time_s": 5.0, "kind": "warm_start", "step": 1}],
        [evaluation(0, 0.5)],
        [train(1, grad_norm=0.0)],
        [{"time_s": None, "kind": "train", "version": 1}, train(1)],
    ],
)
def test_missing_and_broken_figures_leave_gaps(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    run = a_run(tmp_path / "r", rows, tail='{"time_s": 3, "ki')
    words = ["--metrics", "reward,gradient,staleness-over,staleness,dropped,step-time"]
    assert main.main(["plot", str(run), *words, "--out", str(tmp_path / "o.png")]) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere is no run"),
        (["empty"], "has no figures"),
        (["demo", "--smooth", "1"], "--smooth is 1.0"),
        (["demo", "--out", "a.jpg"], "it must be a folder, or end in .png"),
        (["demo", "--out", "no/such/a.png"], "there is no folder"),
        (["demo", "--metrics", "reward,bananas"], "'bananas'"),
        (["demo"] * 65, "65 runs"),
    ],
)
def test_wrong_input_is_named(
    demo: Path, arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(demo.parent)
    (demo.parent / "empty").mkdir()
    assert main.main(["plot", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_any_figure_of_the_rows_can_be_asked_for(demo: Path, tmp_path: Path) -> None:
    assert {"grad_norm", "eval/accuracy"} <= set(metrics_of([read_run(demo)]))
    wanted = "eval/accuracy,learning-rate,grad_norm,staleness"
    assert main.main(["plot", str(demo), "--metrics", wanted, "--out", str(tmp_path / "o.png")]) == 0
    assert {"learning-rate", "staleness"} <= {panel.name for panel in PANELS}


def test_two_runs_of_one_name_are_told_apart(demo: Path, tmp_path: Path) -> None:
    twin = a_run(tmp_path / "other" / "demo", [train(1), train(2)])
    assert main.main(["plot", str(demo), str(twin), "--metrics", "reward", "--out", str(tmp_path / "o.svg")]) == 0
    assert "demo (2)" in (tmp_path / "o.svg").read_text()


def test_bars_of_staleness_are_shares(demo: Path) -> None:
    axes = Figure().subplots()
    assert draw_staleness(axes, alone(read_run(demo)), Look())
    assert [bar.get_height() for bar in axes.patches] == [37.5, 62.5]


def test_the_timeline_has_a_row_per_process_and_gaps_where_one_was_away(tmp_path: Path) -> None:
    beats = [
        node(1000, "w", 0, 0),
        node(1010, "w", 2, 8),
        node(1030, "w", 0, 0, session=2),
        node(1040, "w", 10, 0, session=2),
    ]
    axes = Figure().subplots()
    run = read_run(a_run(tmp_path / "r", [train(1), train(13)], beats))
    assert draw_waits(axes, alone(run), Look())
    (image,) = axes.images
    cells = image.get_array()
    assert cells[0, 10] == pytest.approx(80)
    assert cells.mask[0, 60] if cells.mask.any() else cells[0, 60] != cells[0, 60]
    assert cells[0, 110] == pytest.approx(0)


def test_names_from_elsewhere_are_plain_text(tmp_path: Path) -> None:
    beats = [node(1000.0 + i, "$\\frac{1$\x1b[31m", float(i), float(i)) for i in range(4)]
    run = a_run(tmp_path / "$x_{$", [train(1)], beats)
    words = ["--metrics", "reward,waits"]
    assert main.main(["plot", str(run), str(run), *words, "--out", str(tmp_path / "o.png")]) == 0
    assert main.main(["plot", str(run), *words, "--out", str(tmp_path / "o.png")]) == 0


def test_the_timeline_shows_what_each_process_did_during_some_versions_the_trainer_first(tmp_path: Path) -> None:
    root = a_run(tmp_path / "r", [train(version) for version in range(1, 41)])
    (root / "activity").mkdir()
    spans = {
        "worker-1": [("sampling", 1000.0, 1080.0), ("waiting for lease", 1080.0, 1200.0)],
        "trainer": [("training", 900.0, 1130.0)],
    }
    for name, each in spans.items():
        rows = activity(name, *each)
        (root / "activity" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"torn')
    axes = Figure().subplots()
    assert draw_timeline(axes, alone(read_run(root)), Look())
    assert [label.get_text() for label in axes.get_yticklabels()] == ["trainer", "worker-1"]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["training", "sampling", "waiting"]
    width_s = 14 * 3.0  # versions shown, seconds each
    assert axes.get_xlim() == (0, width_s)
    (train_bar, sample_bar, wait_bar) = axes.collections
    assert [tuple(bar.get_facecolor()[0]) for bar in (train_bar, wait_bar)] == [
        to_rgba(ACTIVITY_COLOURS["training"]),
        to_rgba(WAITING),
    ]
    assert sample_bar.get_paths()[0].get_extents().x1 == pytest.approx(1080.0 - (1000 + 3 * 24 - width_s / 2))


def test_a_run_that_recorded_no_activity_has_no_timeline(demo: Path) -> None:
    assert not draw_timeline(Figure().subplots(), alone(read_run(demo)), Look())


def test_pauses_of_a_run_that_was_continued_do_not_count_as_time(tmp_path: Path) -> None:
    def pool(session: int, time_s: float) -> dict[str, Any]:
        return {"time_s": time_s, "kind": "pool", "session": session, "wall_s": time_s - session, "drops": {}}

    rows = [{**train(1), "time_s": 1010.0}, {**train(2), "time_s": 9020.0}]
    account = [pool(1000, 1005.0), pool(1000, 1030.0), pool(9000, 9005.0)]
    run = read_run(a_run(tmp_path / "r", rows, account))
    assert run.sessions == ((1000.0, 1030.0), (9000.0, 9020.0))
    assert [run.elapsed_s(row["time_s"]) for row in run.train] == [10.0, 50.0]
    assert run.elapsed_s(5000.0) == 30.0
    assert time_unit([run]) == ("seconds", 1.0)


def test_groups_without_a_gradient_are_those_of_the_trainer_and_of_the_pool_by_then(tmp_path: Path) -> None:
    account = [{"time_s": 1005.0, "kind": "pool", "session": 1000, "wall_s": 1.0, "drops": {"stale": 2}}]
    run = read_run(a_run(tmp_path / "r", [train(1), train(2)], account))
    axes = Figure().subplots()
    assert draw_without_gradient(axes, alone(run), Look())
    assert [area.get_label() for area in axes.collections] == ["no signal", "stale"]
    assert axes.collections[1].get_paths()[0].vertices[:, 1].max() == 10  # 8 without signal and 2 stale


def test_a_smoothed_curve_is_not_late_and_keeps_a_constant() -> None:
    ramp = smooth([float(i) for i in range(101)], 0.8)
    assert ramp[50] == pytest.approx(50.0)
    assert smooth([3.0] * 20, None) == pytest.approx([3.0] * 20)
    assert smooth([1.0, 5.0, 2.0], 0.0) == pytest.approx([1.0, 5.0, 2.0])
    # by hand: (1 + 5/2 + 2/4) / (1 + 1/2 + 1/4), and so on
    assert smooth([1.0, 5.0, 2.0], 0.5) == pytest.approx([4 / 1.75, 6.5 / 2, 4.75 / 1.75])


def test_a_legend_names_only_what_is_drawn(demo: Path) -> None:
    axes = Figure().subplots()
    group = alone(read_run(demo))
    assert draw_lines(axes, group, [Series(metric="grad_norm", label="a"), Series(metric="none", label="b")], Look())
    assert axes.get_legend_handles_labels()[1] == ["a"]


def test_a_run_that_has_nothing_yet_is_left_out_of_several(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = a_run(tmp_path / "empty", [])
    assert main.main(["plot", str(demo), str(empty), "--out", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{tmp_path / 'plot.png'}\n"
    assert captured.err.startswith(f"farflung: left out: {empty} has no figures")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
NAMES = ["time_s", "version", "reward/mean", "staleness/histogram", "drops", "session", "node", "role", "busy_s",
         "idle_s", "cpu_s", "tokens", "wall_s", "start_s", "end_s", "activity", "accuracy", "time/train_s"]  # fmt: skip
ROWS = st.lists(
    st.builds(
        lambda sound, kind, other: {**sound, **other, "kind": kind},
        st.sampled_from([train(1), train(2), node(1003.0, "w", 1.0, 1.0), evaluation(1, 0.5)]),
        st.sampled_from(["train", "eval", "node", "pool", "session", "activity"]),
        st.dictionaries(st.sampled_from(NAMES), ANYTHING, max_size=3),
    ),
    max_size=4,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, account=ROWS, intervals=ROWS)
def test_nonsense_in_any_row_ends_in_a_picture_never_in_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], account: list[Any], intervals: list[Any]
) -> None:
    root = a_run(tmp_path_factory.mktemp("n") / "r", [train(3), *rows], [*account])
    (root / "activity").mkdir()
    (root / "activity" / "w.jsonl").write_text("".join(json.dumps(row) + "\n" for row in intervals))
    run = read_run(root)
    for panel in PANELS:
        panel.draw(Figure().subplots(), alone(run), Look())
