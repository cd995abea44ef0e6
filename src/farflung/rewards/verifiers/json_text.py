"""JSON out of a completion, within limits, and nothing that two readers could read differently.

Refused: more than `MAX_JSON_CHARS` characters, nesting deeper than `MAX_DEPTH`, a key that comes twice, NaN and
Infinity, floats that overflow, integers of more than `MAX_DIGITS` digits. Linear.
"""

import json
import math
import re
from typing import Any

MAX_JSON_CHARS = 1 << 17
MAX_DEPTH = 64
MAX_DIGITS = 1000

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
"""A string, an opener or a closer; possessive, so that an open quote is read once."""


class NotJson(ValueError):
    """The text is not one JSON value within the limits."""


def read_json(text: str) -> Any:
    """The value that `text` is.

    Raises:
        NotJson: with the rule that it breaks.
    """
    if len(text) > MAX_JSON_CHARS:
        raise NotJson(f"it has {len(text)} characters, at most {MAX_JSON_CHARS} are read")
    if _depth(text) > MAX_DEPTH:
        raise NotJson(f"it is nested deeper than {MAX_DEPTH}")
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite, parse_int=_integer
        )
    except NotJson:
        raise
    except ValueError:
        raise NotJson("it is not one JSON value") from None


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _TOKEN.finditer(text):
        symbol = match[0]
        if symbol in ("[", "{"):
            depth += 1
            deepest = max(deepest, depth)
        elif symbol in ("]", "}"):
            depth -= 1
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise NotJson("a key comes twice")
    return value


def _no_constant(name: str) -> float:
    raise NotJson(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise NotJson("a number is too large")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise NotJson(f"an integer has more than {MAX_DIGITS} digits")
    return int(digits)
