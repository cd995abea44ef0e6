"""What the figures of a local run tell of versions that no checkpoint holds.

A kill, or a checkpoint that is damaged, loses the versions after the newest whole one. They are made again under the
same numbers; a row says so, and rows of theirs that came before it count no more (`telemetry.metrics.as_it_stands`).
"""

import logging
from pathlib import Path

from farflung.errors import UserError
from farflung.telemetry.metrics import STEPPED_BACK, MetricsLog, as_it_stands, read_metrics

logger = logging.getLogger(__name__)


def step_back(metrics: Path, checkpoints: Path, version: int | None) -> None:
    """Note the versions that are lost, if any are.

    Args:
        metrics: the run's file of figures.
        checkpoints: its folder of them.
        version: of the newest whole checkpoint, None if there is none.

    Raises:
        UserError: versions were made and there is no checkpoint at all: another run would begin among their figures.
    """
    rows = as_it_stands(read_metrics(metrics))
    made = max((row["version"] for row in rows if row["kind"] == "train" and "version" in row), default=0)
    if version is None:
        if made:
            raise UserError(
                f"{metrics} tells of version {made}, but no checkpoint in {checkpoints} can be read: put one back, or "
                "start another run with --run.name NAME"
            )
        return
    if made > version:
        logger.warning("no whole checkpoint is newer than version %d: up to version %d is made again", version, made)
        MetricsLog(metrics).write(STEPPED_BACK, {"from_version": made}, version=version)
