"""Change density as a picture: a row for each layer, a column for each kind of matrix, other tensors below."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from farflung.sharding.difference import Difference, TensorDifference

_LAYER = re.compile(r"^(?:.*\.)?(?:layers|h|blocks)\.(\d+)\.(.+)$")
LOWEST = 1e-6
"""Density at the lower end of the colours; unchanged tensors are white."""


def layer_of(name: str) -> tuple[int, str] | None:
    """`model.layers.3.mlp.up_proj.weight` -> (3, "mlp.up_proj"); None for a tensor of no layer."""
    found = _LAYER.match(name)
    return None if found is None else (int(found[1]), found[2].removesuffix(".weight"))


def grid(tensors: Sequence[TensorDifference]) -> tuple[list[int], list[str], NDArray[np.float64]]:
    """(layers, kinds, density_LK); NaN where a layer has no such tensor."""
    placed = {place: tensor.density for tensor in tensors if (place := layer_of(tensor.name)) is not None}
    layers = sorted({layer for layer, _ in placed})
    kinds = list(dict.fromkeys(kind for _, kind in placed))
    density_LK = np.array([[placed.get((layer, kind), np.nan) for kind in kinds] for layer in layers])
    return layers, kinds, density_LK.reshape(len(layers), len(kinds))


def draw_density(difference: Difference, path: Path, title: str) -> None:
    """Write the picture; the format is that of the path's suffix."""
    layers, kinds, density_LK = grid(difference.tensors)
    others = [tensor for tensor in difference.tensors if layer_of(tensor.name) is None]
    heights = [max(1.0, 0.22 * len(layers)), max(0.6, 0.22 * len(others))]
    figure = Figure(figsize=(max(6.0, 0.75 * len(kinds) + 2.5), sum(heights) + 2.6), layout="constrained")
    upper, lower = figure.subplots(2, 1, height_ratios=heights)
    norm = LogNorm(LOWEST, 1)
    _cells(upper, density_LK, norm)
    upper.set_xticks(range(len(kinds)), kinds, rotation=40, ha="right", fontsize=8)
    step = max(1, len(layers) // 30)
    upper.set_yticks(range(0, len(layers), step), [str(layer) for layer in layers[::step]], fontsize=8)
    upper.set_ylabel("layer")
    upper.set_title(f"{title}\nshare of elements that changed: {difference.density:.3%} in all", fontsize=10)
    _cells(lower, np.array([[tensor.density] for tensor in others]).reshape(len(others), 1), norm)
    lower.set_yticks(range(len(others)), [tensor.name for tensor in others], fontsize=8)
    lower.set_xticks([])
    figure.colorbar(upper.images[0], ax=[upper, lower], label="density; numbers in %")
    figure.savefig(path, dpi=130)


def _cells(axes: Axes, density: NDArray[np.float64], norm: LogNorm) -> None:
    shown = np.where(density > 0, np.maximum(density, LOWEST), np.nan)
    axes.imshow(shown if shown.size else np.full((1, 1), np.nan), aspect="auto", cmap="viridis", norm=norm)
    for (row, column), value in np.ndenumerate(density):
        if density.shape[0] <= 40 and not np.isnan(value):
            colour = "black" if value == 0 or value > 0.03 else "white"
            text = "0" if value == 0 else f"{100 * value:.2g}"
            axes.text(column, row, text, ha="center", va="center", fontsize=6, color=colour)
