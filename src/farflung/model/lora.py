"""LoRA adapters as tensors under Hugging Face names (2106.09685):  W' = W + scale * B A.

    model.layers.3.self_attn.q_proj.lora_A.weight   [rank, inputs]    uniform in +-1/sqrt(inputs) at first
    model.layers.3.self_attn.q_proj.lora_B.weight   [outputs, rank]   zero at first: nothing is changed

    scale = alpha / rank, or alpha / sqrt(rank) when rank-stabilised (2312.03732)

Knows no decoder, no files and no optimizer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from farflung.errors import UserError
from farflung.model.config import ModelConfig
from farflung.model.weights import expected_shapes

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Projections of a layer that may have an adapter."""
A, B = ".lora_A.weight", ".lora_B.weight"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraSpec:
    """Everything of an adapter but its numbers."""

    rank: int
    alpha: float
    targets: tuple[str, ...] = TARGETS
    is_rank_stabilised: bool = False

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank is {self.rank}: it must be at least 1")
        if not self.targets or set(self.targets) - set(TARGETS) or len(set(self.targets)) < len(self.targets):
            raise ValueError(f"targets are {list(self.targets)}: they must be some of {', '.join(TARGETS)}, each once")

    @property
    def scale(self) -> float:
        return self.alpha / (math.sqrt(self.rank) if self.is_rank_stabilised else self.rank)


def adapted_modules(config: ModelConfig, spec: LoraSpec) -> dict[str, tuple[int, ...]]:
    """Name of each projection with an adapter -> shape of its weight, in the order of the forward pass."""
    weights = {name.removesuffix(".weight"): shape for name, shape in expected_shapes(config).items()}
    return {name: shape for name, shape in weights.items() if name.rpartition(".")[2] in spec.targets}


def adapter_shapes(config: ModelConfig, spec: LoraSpec) -> dict[str, tuple[int, ...]]:
    """Every tensor of an adapter."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (num_out, num_in) in adapted_modules(config, spec).items():
        shapes |= {name + A: (spec.rank, num_in), name + B: (num_out, spec.rank)}
    return shapes


def fresh_adapter(config: ModelConfig, spec: LoraSpec, seed: int) -> dict[str, Tensor]:
    """float32; changes nothing yet. A function of the arguments alone."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.zeros(shape) if name.endswith(B) else _uniform(shape, generator)
        for name, shape in adapter_shapes(config, spec).items()
    }


def check_adapter(config: ModelConfig, spec: LoraSpec, adapter: Mapping[str, Tensor]) -> None:
    """Raises UserError: tensors missing, unexpected or of another shape."""
    shapes = adapter_shapes(config, spec)
    wrong = [
        *(f"{name} is missing" for name in shapes if name not in adapter),
        *(f"{name} is unexpected" for name in adapter if name not in shapes),
        *(
            f"{name} has shape {tuple(adapter[name].shape)}, not {shape}"
            for name, shape in shapes.items()
            if name in adapter and tuple(adapter[name].shape) != shape
        ),
    ]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise UserError(f"the adapter does not fit this model: {'; '.join(wrong[:3])}{more}")


def merge(
    state: Mapping[str, Tensor], adapter: Mapping[str, Tensor], spec: LoraSpec, *, dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """The whole model with the adapter inside: sums in float32, rounded once to `dtype` (None = the state's own).

    Tensors without an adapter are shared with `state` where their dtype is that already.
    """
    merged = {}
    for name, tensor in state.items():
        module = name.removesuffix(".weight")
        if module + A in adapter:
            product = adapter[module + B].float() @ adapter[module + A].float()
            merged[name] = torch.add(tensor.float(), product, alpha=spec.scale).to(dtype or tensor.dtype)
        else:
            merged[name] = tensor.detach().to(dtype or tensor.dtype)
    return merged


def split(
    state: Mapping[str, Tensor], base: Mapping[str, Tensor], config: ModelConfig, spec: LoraSpec
) -> dict[str, Tensor]:
    """The adapter that comes nearest to turning `base` into `state`: best of its rank per matrix (Eckart-Young).

    What differs elsewhere, in embeddings or norms, is not in it.
    """
    adapter: dict[str, Tensor] = {}
    for module in adapted_modules(config, spec):
        difference = state[f"{module}.weight"].float() - base[f"{module}.weight"].float()
        left, values, right = torch.linalg.svd(difference / spec.scale, full_matrices=False)
        roots = values[: spec.rank].sqrt()
        a, b = torch.zeros(spec.rank, right.shape[1]), torch.zeros(len(left), spec.rank)
        a[: len(roots)], b[:, : len(roots)] = roots[:, None] * right[: spec.rank], left[:, : spec.rank] * roots
        adapter |= {module + A: a, module + B: b}
    return adapter


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Kaiming's rule with slope sqrt(5), as the authors' code and `peft` have it."""
    return torch.empty(shape).uniform_(-1.0, 1.0, generator=generator).div_(math.sqrt(shape[1]))
