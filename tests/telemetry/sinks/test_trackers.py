"""The trackers: TensorBoard for real, the others against modules that stand in for theirs."""

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farflung.errors import UserError
from farflung.telemetry.sinks.base import Target, sink_factory
from farflung.telemetry.sinks.points import Point

POINTS = [
    Point(time_s=100.0, step=1, figures={"reward/mean": 0.25, "eval/accuracy": 0.5}),
    Point(time_s=101.0, step=2, figures={"reward/mean": 0.75}),
]


def target(folder: Path, **changes: Any) -> Target:
    fields = {"project": "p", "run_name": "demo", "run_id": "ab12", "folder": folder, "settings": {"seed": 3}}
    return Target(**{**fields, **changes})


class Recorder:
    """Notes every call of it and of what it returns."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> "Recorder":
            self.calls.append((name, args, kwargs))
            return self

        return call


@pytest.fixture
def stand_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """A module called `request.param` that records; the sink is imported afresh against it."""
    recorder = Recorder()
    module = types.ModuleType(request.param)
    module.__spec__ = importlib.machinery.ModuleSpec(request.param, None)
    for name in ("init", "Settings"):
        setattr(module, name, getattr(recorder, name))
    monkeypatch.setitem(sys.modules, request.param, module)
    monkeypatch.delitem(sys.modules, f"farflung.telemetry.sinks.{request.param}", raising=False)
    yield recorder
    sys.modules.pop(f"farflung.telemetry.sinks.{request.param}", None)


def test_event_files_hold_every_figure_at_its_version_and_time(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for points in (POINTS[:1], POINTS[1:]):  # the second process goes on in the same folder
        sink = sink_factory("tensorboard")(target(tmp_path))
        sink.write(points)
        sink.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["eval/accuracy", "reward/mean"]
    found = [(event.wall_time, event.step, event.value) for event in events.Scalars("reward/mean")]
    assert found == [(100.0, 1, 0.25), (101.0, 2, 0.75)]


@pytest.mark.parametrize("stand_in", ["wandb"], indirect=True)
def test_weights_and_biases_goes_on_by_id_and_charts_over_versions(stand_in: Recorder, tmp_path: Path) -> None:
    sink = sink_factory("wandb")(target(tmp_path, is_offline=True))
    sink.write(POINTS)
    sink.close()
    calls = {name: kwargs for name, _, kwargs in stand_in.calls}
    assert calls["init"].items() >= {"project": "p", "id": "ab12", "resume": "allow", "mode": "offline"}.items()
    assert calls["init"]["config"] == {"seed": 3}
    assert [args[0] for name, args, _ in stand_in.calls if name == "log"] == [
        {"reward/mean": 0.25, "eval/accuracy": 0.5, "policy_version": 1},
        {"reward/mean": 0.75, "policy_version": 2},
    ]
    assert stand_in.calls[-1][0] == "finish"


@pytest.mark.parametrize("stand_in", ["trackio"], indirect=True)
def test_trackio_goes_on_by_name(stand_in: Recorder, tmp_path: Path) -> None:
    sink = sink_factory("trackio")(target(tmp_path))
    sink.write(POINTS)
    sink.close()
    name, _, kwargs = stand_in.calls[0]
    assert name == "init"
    assert kwargs.items() >= {"project": "p", "name": "demo", "resume": "allow"}.items()
    assert stand_in.calls[1] == ("log", ({"reward/mean": 0.25, "eval/accuracy": 0.5},), {"step": 1})


def test_a_package_that_is_not_there_is_told_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UserError, match=r"wandb is not installed: pip install 'farflung\[wandb\]'"):
        sink_factory("wandb")
