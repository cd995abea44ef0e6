"""Values of a `config.json` that several families spell alike: kinds of layers, activations."""

from collections.abc import Mapping
from typing import Any

from farflung.model.json_values import require, require_own

LOCAL, GLOBAL = "sliding_attention", "full_attention"


def layer_types(raw: Mapping[str, Any], default: list[str]) -> list[str]:
    """`LOCAL` or `GLOBAL` for each layer: what `layer_types` says, else the default."""
    given = raw.get("layer_types")
    if given is None:
        return default
    require(
        isinstance(given, list) and len(given) == len(default),
        f"layer_types is {str(given)[:100]}: it must have a word for each of {len(default)} layers",
    )
    other = [kind for kind in given if kind not in (LOCAL, GLOBAL)]
    require_own(not other, f"layer_types has {str(other[:1])[:50]}: the own decoder has {LOCAL} and {GLOBAL}")
    return list(given)


def require_activation(raw: Mapping[str, Any], key: str, supported: str) -> None:
    """Raises Unsupported for another one."""
    activation = raw.get(key, supported)
    require_own(activation == supported, f"{key} is {activation!r}: the own decoder has {supported!r}")
