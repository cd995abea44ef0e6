"""How rotary frequencies are stretched for contexts longer than those of pre-training: the numbers, without torch.

`rope.py` has the formulas. Two of the rules turn every position anew once a text is longer than a bound; a token's
states would then depend on how long its text will become. Here these models end at the bound.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farflung.model.json_values import Unsupported, integer, number, numbers, require


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


@dataclass(frozen=True, kw_only=True, slots=True)
class YarnRope:
    """As Llama 3.1's with bounds in rotations per context, and scores sharpened (2309.00071)."""

    factor: float
    beta_fast: float = 32.0
    """Frequencies with more rotations than this are kept."""
    beta_slow: float = 1.0
    """Those with fewer are divided by `factor`."""
    original_max_position_embeddings: int
    attention_factor: float
    """Rotated queries and keys are multiplied by this."""
    truncate: bool = True
    """The bounds are rounded to whole pairs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LongRope:
    """A divisor for each frequency (2402.13753); `long_factor` would hold beyond the original context."""

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_max_position_embeddings: int
    attention_factor: float
    """Rotated queries and keys are multiplied by this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DynamicRope:
    """Plain within `max_position_embeddings`, stretched beyond it."""

    factor: float


RopeScaling = LinearRope | Llama3Rope | YarnRope | LongRope | DynamicRope | None


def read_rope(raw: Mapping[str, Any], default_theta: float = 10_000.0) -> tuple[float, RopeScaling]:
    """Base and scaling from either spelling: `rope_parameters` (transformers 5) or `rope_theta` + `rope_scaling`.

    Raises:
        Unsupported: a rule that is not here, or one for a part of each head.
        UserError: a missing or broken value.
    """
    params = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    require(isinstance(params, Mapping), f"rope parameters are {params!r}: they must be a table")
    theta = number(params, "rope_theta", default=number(raw, "rope_theta", default=default_theta))
    rotated = params.get("partial_rotary_factor", raw.get("partial_rotary_factor"))
    if rotated not in (None, 1, 1.0):
        raise Unsupported(f"partial_rotary_factor is {rotated!r}: the own decoder rotates whole heads")
    kind = params.get("rope_type", params.get("type", "default"))
    match kind:
        case "default":
            return theta, None
        case "linear":
            return theta, LinearRope(factor=number(params, "factor"))
        case "dynamic":
            return theta, DynamicRope(factor=number(params, "factor"))
        case "llama3":
            return theta, Llama3Rope(
                factor=number(params, "factor"),
                low_freq_factor=number(params, "low_freq_factor"),
                high_freq_factor=number(params, "high_freq_factor"),
                original_max_position_embeddings=integer(params, "original_max_position_embeddings"),
            )
        case "yarn":
            return theta, _read_yarn(raw, params)
        case "longrope":
            return theta, _read_longrope(raw, params)
    raise Unsupported(f"rope_type is {kind!r}: the own decoder has default, linear, dynamic, llama3, yarn and longrope")


def rope_to_hf(scaling: RopeScaling) -> dict[str, Any] | None:
    """As `rope_scaling` of a `config.json`."""
    match scaling:
        case None:
            return None
        case LinearRope():
            return {"rope_type": "linear", "factor": scaling.factor}
        case DynamicRope():
            return {"rope_type": "dynamic", "factor": scaling.factor}
        case Llama3Rope():
            return {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_max_position_embeddings,
            }
        case YarnRope():
            return {
                "rope_type": "yarn",
                "factor": scaling.factor,
                "beta_fast": scaling.beta_fast,
                "beta_slow": scaling.beta_slow,
                "original_max_position_embeddings": scaling.original_max_position_embeddings,
                "attention_factor": scaling.attention_factor,
                "truncate": scaling.truncate,
            }
        case LongRope():
            return {
                "rope_type": "longrope",
                "short_factor": list(scaling.short_factor),
                "long_factor": list(scaling.long_factor),
                "original_max_position_embeddings": scaling.original_max_position_embeddings,
                "attention_factor": scaling.attention_factor,
            }


def _read_yarn(raw: Mapping[str, Any], params: Mapping[str, Any]) -> YarnRope:
    original, factor = _original_and_factor(raw, params)
    if params.get("mscale") and params.get("mscale_all_dim"):
        sharpened = _yarn_scale(factor, number(params, "mscale")) / _yarn_scale(
            factor, number(params, "mscale_all_dim")
        )
    else:
        sharpened = _yarn_scale(factor, 1.0)
    return YarnRope(
        factor=factor,
        beta_fast=number(params, "beta_fast", default=32.0),
        beta_slow=number(params, "beta_slow", default=1.0),
        original_max_position_embeddings=original,
        attention_factor=number(params, "attention_factor", default=sharpened),
        truncate=bool(params.get("truncate", True)),
    )


def _yarn_scale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _read_longrope(raw: Mapping[str, Any], params: Mapping[str, Any]) -> LongRope:
    original, factor = _original_and_factor(raw, params)
    require(original >= 2, f"original_max_position_embeddings is {original}: it must be at least 2")
    sharpened = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return LongRope(
        short_factor=numbers(params, "short_factor"),
        long_factor=numbers(params, "long_factor"),
        original_max_position_embeddings=original,
        attention_factor=number(params, "attention_factor", default=sharpened),
    )


def _original_and_factor(raw: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[int, float]:
    """Context of pre-training, and how many times longer the model's is."""
    longest = integer(raw, "max_position_embeddings", default=2048)
    outside = integer(raw, "original_max_position_embeddings", default=longest)
    original = integer(params, "original_max_position_embeddings", default=outside)
    require(original >= 1, f"original_max_position_embeddings is {original}: it must be at least 1")
    factor = number(params, "factor", default=longest / original)
    require(factor > 0, f"the factor of the rope scaling is {factor}: it must be above 0")
    return original, factor
