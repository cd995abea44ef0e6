"""Weights & Biases, online or as local files that `wandb sync` sends later."""

from collections.abc import Sequence

import wandb

from farflung.telemetry.sinks.base import Target
from farflung.telemetry.sinks.points import Point

STEP = "policy_version"
"""What charts have on their x axis: its own step only ever rises, a run that went back by a version would lose rows."""


class WandbSink:
    """One run, gone on with by its id."""

    def __init__(self, target: Target) -> None:
        self._run = wandb.init(
            project=target.project,
            name=target.run_name,
            id=target.run_id,
            resume="allow",
            mode="offline" if target.is_offline else "online",
            dir=str(target.folder / "sinks"),
            config=dict(target.settings),
            settings=wandb.Settings(console="off", disable_git=True, silent=True),
        )
        self._run.define_metric(STEP, hidden=True)
        self._run.define_metric("*", step_metric=STEP)

    def write(self, points: Sequence[Point]) -> None:
        """Into its own queue, which its own process sends."""
        for point in points:
            self._run.log({**point.figures, STEP: point.step})

    def close(self) -> None:
        self._run.finish()
