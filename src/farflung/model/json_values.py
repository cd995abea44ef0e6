"""Values of a parsed `config.json`, each checked for its type as it is read."""

from collections.abc import Mapping
from typing import Any

from farflung.errors import UserError


class Unsupported(UserError):
    """A well-formed model with something that the own decoder does not have; transformers may run it."""


def require(rule_holds: bool, message: str) -> None:
    """Raises UserError unless the rule holds."""
    if not rule_holds:
        raise UserError(message)


def require_own(rule_holds: bool, message: str) -> None:
    """Raises Unsupported unless the own decoder has it."""
    if not rule_holds:
        raise Unsupported(message)


def integer(raw: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = raw.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError(f"{key} is {value!r} in the model's config.json: it must be a whole number")
    return value


def number(raw: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = raw.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{key} is {value!r} in the model's config.json: it must be a number")
    return float(value)


def numbers(raw: Mapping[str, Any], key: str) -> tuple[float, ...]:
    """A list of numbers."""
    values = raw.get(key)
    if not isinstance(values, list):
        raise UserError(f"{key} is {str(values)[:100]} in the model's config.json: it must be a list of numbers")
    return tuple(number({key: value}, key) for value in values)


def optional_id(raw: Mapping[str, Any], key: str) -> int | None:
    return None if raw.get(key) is None else integer(raw, key)


def ids(raw: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """One id, a list of ids, or nothing."""
    value = raw.get(key)
    if value is None:
        return ()
    values = value if isinstance(value, list) else [value]
    return tuple(integer({key: item}, key) for item in values)
