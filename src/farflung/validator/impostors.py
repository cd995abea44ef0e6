"""Other computations than the one that was asked for, honest and not: what calibration tells apart.

    honest      activations rounded to bfloat16 after every layer, as hardware with such units computes
    impostors   weights in int8, int4 or float8; a layer left out; weights that drifted

State dicts in, state dicts out; matrices are changed, vectors are not. This module does not sample or judge.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from farflung.model.any_config import AnyConfig
from farflung.model.build import AnyDecoder
from farflung.model.config import ModelConfig
from farflung.model.decoder import Projection
from farflung.model.norm import RMSNorm

State = Mapping[str, Tensor]
Impostor = Callable[[AnyConfig, State], tuple[AnyConfig, State]]

FLOAT8_MAX = 448.0
"""Largest number of float8 e4m3."""
DRIFT = 1e-2
"""Of a matrix's standard deviation; a tenth of it is about what honest bfloat16 hides on SmolLM2-135M."""


def quantised(num_steps: int) -> Impostor:
    """Symmetric integers per output row: 127 steps are int8, 7 int4."""

    def change(weight: Tensor) -> Tensor:
        scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / num_steps
        return torch.round(weight / scale) * scale

    return _of_matrices(change)


def _float8(weight: Tensor) -> Tensor:
    scale = weight.abs().max().clamp(min=1e-12) / FLOAT8_MAX
    return (weight / scale).to(torch.float8_e4m3fn).to(weight.dtype) * scale


def drifted(size: float, seed: int = 0) -> Impostor:
    """Every matrix moved by noise of `size` times its standard deviation: an older version, or a fine-tuned one."""

    def change(weight: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return weight + size * weight.std() * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)

    return _of_matrices(change)


def layer_skipped(config: AnyConfig, state: State) -> tuple[AnyConfig, State]:
    """The middle layer left out, as one would to be faster. Own decoders only."""
    if not isinstance(config, ModelConfig) or config.num_layers < 2:
        return config, state
    gone, kept = config.num_layers // 2, dict[str, Tensor]()
    for name, weight in state.items():
        parts = name.split(".")
        at = parts.index("layers") + 1 if "layers" in parts else 0
        number = int(parts[at]) if at else -1
        if number != gone:
            parts[at] = str(number - (number > gone)) if at else parts[at]
            kept[".".join(parts)] = weight
    return replace(config, num_layers=config.num_layers - 1), kept


def _of_matrices(change: Callable[[Tensor], Tensor]) -> Impostor:
    def impostor(config: AnyConfig, state: State) -> tuple[AnyConfig, State]:
        return config, {name: change(weight.float()) if weight.ndim == 2 else weight for name, weight in state.items()}

    return impostor


IMPOSTORS: Mapping[str, Impostor] = {
    "int8 weights": quantised(127),
    "int4 weights": quantised(7),
    "float8 weights": _of_matrices(_float8),
    "a layer skipped": layer_skipped,
    "weights off by 1 %": drifted(DRIFT),
}


@contextmanager
def rounding_to_bfloat16(decoder: AnyDecoder) -> Iterator[None]:
    """Every product and norm of the decoder gives numbers that bfloat16 has, as on hardware that computes in it."""

    def round_output(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        return output.to(torch.bfloat16).to(output.dtype)

    handles = [
        module.register_forward_hook(round_output)
        for module in decoder.modules()
        if isinstance(module, Projection | RMSNorm | nn.Linear)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
