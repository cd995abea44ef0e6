"""Honest work and impostors as dots on one axis per figure, with the thresholds between them."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from farflung.validator.calibrate import Calibration

SHOWN = {
    "activation_submission": "distance of states",
    "mean_margin": "mean margin of draws",
    "logprob_error": "largest error of a logprob",
}
HONEST, IMPOSTOR = "#1b7f5c", "#c23b22"
SMALLEST = 1e-5
"""Where figures that are 0 are drawn on the logarithmic axis."""


def draw_separation(found: "Calibration", path: Path) -> None:
    """Write the picture; the format is that of the path's suffix."""
    figure = Figure(figsize=(13, 0.42 * len(found.spreads) + 1.6), layout="constrained")
    panels = figure.subplots(1, len(SHOWN), sharey=True)
    for axes, (name, title) in zip(panels, SHOWN.items(), strict=True):
        _panel(axes, found, name, title)
    panels[0].set_yticks(range(len(found.spreads)), [spread.name for spread in found.spreads])
    panels[0].invert_yaxis()
    figure.savefig(path, dpi=130)


def _panel(axes: Axes, found: "Calibration", name: str, title: str) -> None:
    for row, spread in enumerate(found.spreads):
        values = np.maximum(spread.figure(name), SMALLEST)
        axes.plot(values, [row] * len(values), "o", alpha=0.6, color=HONEST if spread.is_honest else IMPOSTOR)
    axes.axvline(found.separations[name].threshold, color="black", linewidth=1, linestyle="--")
    axes.set_xscale("log")
    axes.set_xlabel(title)
    axes.grid(axis="x", alpha=0.2)
