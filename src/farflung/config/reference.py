"""Every setting of a model with its type, default, unit, bounds and meaning, as people read them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from inspect import getdoc
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types as rules
from pydantic import BaseModel

from farflung.config import fields
from farflung.config.overrides import NONE_WORD

_PLAIN_TYPES = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    Path: "path",
}
_UNITS = {
    "_s": "seconds",
    "_ms": "milliseconds",
    "_bytes": "bytes",
    "_tokens": "tokens",
    "_steps": "steps",
    "_versions": "versions",
    "_share": "0 to 1",
    "_ratio": "0 to 1",
    "_per_s": "per second",
}
"""End of a name -> unit; the longest that fits counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One key."""

    name: str
    """Dotted."""
    type: str
    default: str
    """As TOML; empty where there is none."""
    unit: str
    """Empty where the name does not tell one."""
    bounds: str
    """Such as "at least 2, at most 64"; empty where there are none."""
    meaning: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One table of the file."""

    name: str
    meaning: str
    settings: tuple[Setting, ...]


def sections(model: type[BaseModel], prefix: str = "") -> Iterator[Section]:
    """In declaration order, a section before those that it holds."""
    below = [key for key in fields.keys(model) if "." not in key.name]
    settings = tuple(_setting(key, prefix) for key in below if key.section is None)
    if settings:
        yield Section(name=prefix.rstrip("."), meaning=_first_paragraph(model), settings=settings)
    for key in below:
        if key.section is not None:
            yield from sections(key.section, f"{prefix}{key.name}.")


def _setting(key: fields.Key, prefix: str) -> Setting:
    assert key.field is not None, "a fixed key has a field"
    return Setting(
        name=prefix + key.name,
        type=_type(key.annotation),
        default="" if key.field.is_required() else _toml(key.field.get_default(call_default_factory=True)),
        unit=_unit(key.name),
        bounds=", ".join(filter(None, map(_rule, key.field.metadata))),
        meaning=key.field.description or "",
    )


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " or ".join([*(_type(each) for each in arguments if each is not type(None)),
                            *([NONE_WORD] if type(None) in arguments else [])])  # fmt: skip
    if origin is Literal:
        return " or ".join(_toml(value) for value in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "table"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(_toml(member.value) for member in annotation)
    return _PLAIN_TYPES[annotation]


def _toml(value: Any) -> str:
    match value:
        case None:
            return NONE_WORD
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case Enum():
            return json.dumps(value.value)
        case dict():
            return "{" + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + "}"
        case tuple() | list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case _:
            return json.dumps(value, default=str, ensure_ascii=False)


def _unit(name: str) -> str:
    ends = [end for end in _UNITS if name.endswith(end)]
    return _UNITS[max(ends, key=len)] if ends else ""


def _rule(rule: Any) -> str:
    match rule:
        case rules.Ge(ge=bound):
            return f"at least {_number(bound)}"
        case rules.Gt(gt=bound):
            return f"above {_number(bound)}"
        case rules.Le(le=bound):
            return f"at most {_number(bound)}"
        case rules.Lt(lt=bound):
            return f"below {_number(bound)}"
        case rules.MinLen(min_length=bound):
            return f"length at least {bound}"
        case rules.MaxLen(max_length=bound):
            return f"length at most {bound}"
        case _:
            pattern = getattr(rule, "pattern", None)
            return f"of the form `{pattern}`" if pattern else ""


def _number(bound: Any) -> str:
    return f"{bound:g}" if isinstance(bound, float) else f"{bound:,}".replace(",", " ")


def _first_paragraph(model: type[BaseModel]) -> str:
    return " ".join((getdoc(model) or "").partition("\n\n")[0].split())
