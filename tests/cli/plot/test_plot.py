"""`farflung plot`: whatever a run has left, there is a picture or a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from farflung.cli import main
from farflung.cli.plot.axis import positions
from farflung.cli.plot.lines import Look, Series, draw_lines, families
from farflung.cli.plot.overview import FREQUENT, metrics_of
from farflung.cli.plot.panels import draw_staleness, draw_waits
from farflung.cli.plot.runs import read_run

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
    assert main.main(["plot", str(demo), "--each", str(tmp_path / "each"), "--format", suffix]) == 0
    names = {path.stem for path in (tmp_path / "each").iterdir()}
    assert {"reward", "accuracy", "staleness", "step-time", "waits", "gradient"} <= names
    assert "entropy" not in names  # the run has none


@pytest.mark.parametrize("axis", ["versions", "time", "samples", "tokens"])
def test_every_axis_runs(demo: Path, tmp_path: Path, axis: str) -> None:
    assert main.main(["plot", str(demo), "--x", axis, "--out", str(tmp_path / "o.png")]) == 0


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
    assert main.main(["plot", *map(str, paths), "--group", "--out", str(tmp_path / "o.png")]) == 0
    runs = [read_run(path) for path in paths]
    assert list(families(runs, Look(is_grouped=True))) == ["exp"]
    axes = Figure().subplots()
    assert draw_lines(axes, runs, [Series(metric="reward/mean")], Look(is_grouped=True, smoothing=0.0))
    (line,) = axes.get_lines()
    xs, ys = line.get_data()
    assert (min(xs), max(xs)) == (1, 4)  # where all of them are
    assert ys[0] == pytest.approx(2.0)  # the mean of 1, 2, 3
    assert line.get_label() == "exp (mean of 3)"


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
    assert main.main(["plot", str(run), "--out", str(tmp_path / "o.png")]) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere is no run"),
        (["empty"], "has no figures"),
        (["demo", "--smooth", "1"], "--smooth is 1.0"),
        (["demo", "--out", "a.jpg"], "must end in .png"),
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
    assert {"learning-rate", "staleness"} <= {panel.name for panel in FREQUENT}


def test_two_runs_of_one_name_are_told_apart(demo: Path, tmp_path: Path) -> None:
    twin = a_run(tmp_path / "other" / "demo", [train(1), train(2)])
    assert main.main(["plot", str(demo), str(twin), "--out", str(tmp_path / "o.svg")]) == 0
    assert "demo (2)" in (tmp_path / "o.svg").read_text()


def test_bars_of_staleness_are_shares(demo: Path) -> None:
    axes = Figure().subplots()
    assert draw_staleness(axes, [read_run(demo)])
    assert [bar.get_height() for bar in axes.patches] == [37.5, 62.5]


def test_the_timeline_has_a_row_per_process_and_gaps_where_one_was_away(tmp_path: Path) -> None:
    beats = [
        node(1000, "w", 0, 0),
        node(1010, "w", 2, 8),
        node(1030, "w", 0, 0, session=2),
        node(1040, "w", 10, 0, session=2),
    ]
    axes = Figure().subplots()
    assert draw_waits(axes, [read_run(a_run(tmp_path / "r", [train(1), train(13)], beats))])
    (image,) = axes.images
    cells = image.get_array()
    assert cells[0, 20] == pytest.approx(80)
    assert cells.mask[0, 60] if cells.mask.any() else cells[0, 60] != cells[0, 60]
    assert cells[0, 110] == pytest.approx(0)


def test_names_from_elsewhere_are_plain_text(tmp_path: Path) -> None:
    beats = [node(1000.0 + i, "$\\frac{1$\x1b[31m", float(i), float(i)) for i in range(4)]
    run = a_run(tmp_path / "$x_{$", [train(1)], beats)
    assert main.main(["plot", str(run), str(run), "--out", str(tmp_path / "o.png")]) == 0
