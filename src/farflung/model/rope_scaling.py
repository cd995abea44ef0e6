"""How rotary frequencies are stretched for contexts longer than those of pre-training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farflung.errors import UserError
from farflung.model.json_values import integer, number, require


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearRope:
    """Every frequency divided by `factor` (position interpolation)."""

    factor: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Llama3Rope:
    """Low frequencies divided by `factor`, high ones kept, a linear blend between (Llama 3.1's rule)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


RopeScaling = LinearRope | Llama3Rope | None


def read_rope(raw: Mapping[str, Any]) -> tuple[float, RopeScaling]:
    """Base and scaling from either spelling: `rope_parameters` (transformers 5) or `rope_theta` + `rope_scaling`."""
    params = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    require(isinstance(params, Mapping), f"rope parameters are {params!r}: they must be a table")
    theta = number(params, "rope_theta", default=number(raw, "rope_theta", default=10_000.0))
    kind = params.get("rope_type", params.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, LinearRope(factor=number(params, "factor"))
    if kind == "llama3":
        return theta, Llama3Rope(
            factor=number(params, "factor"),
            low_freq_factor=number(params, "low_freq_factor"),
            high_freq_factor=number(params, "high_freq_factor"),
            original_max_position_embeddings=integer(params, "original_max_position_embeddings"),
        )
    raise UserError(f"rope_type is {kind!r}: only 'default', 'linear' and 'llama3' are supported")


def rope_to_hf(scaling: RopeScaling) -> dict[str, Any] | None:
    """As `rope_scaling` of a `config.json`."""
    if scaling is None:
        return None
    if isinstance(scaling, LinearRope):
        return {"rope_type": "linear", "factor": scaling.factor}
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_max_position_embeddings,
    }
