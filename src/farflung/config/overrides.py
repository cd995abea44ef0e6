"""`--section.key value` and `--section.key=value`, with values read as the field's type asks.

Text fields take the words as they are; everything else is a TOML value (`1e-6`, `true`, `[1, 2]`, `{digits = 6}`) or
JSON. `none` means None where a field admits it.
"""

import json
import tomllib
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from farflung.config import fields
from farflung.errors import UserError

NONE_WORD = "none"
"""How None is written in TOML, which has no word of its own, and on the command line."""


def parse_overrides(model: type[BaseModel], arguments: Sequence[str]) -> dict[str, Any]:
    """Dotted key -> value; of several for one key the last wins.

    Raises:
        UserError: an argument that is no override, an unknown key, a key without a value.
    """
    values: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--") or argument == "--":
            raise UserError(f"unexpected argument {argument!r}: settings are changed with --section.key value")
        name, equals, text = argument[2:].partition("=")
        key = _key(model, name.replace("-", "_"))
        if not equals:
            if not rest or rest[0].startswith("--"):
                meaning = f" ({key.description})" if key.description else ""
                raise UserError(f"--{name} has no value: write --{name} VALUE{meaning}")
            text = rest.pop(0)
        values[key.name] = read_value(key, text)
    return values


def read_value(key: fields.Key, text: str) -> Any:
    """`text` as a value for `key`; text that is no TOML or JSON stays text, for validation to judge."""
    if key.admits_none and text.lower() == NONE_WORD:
        return None
    if _is_text(key.annotation):
        return text
    for read in (_from_toml, json.loads):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _key(model: type[BaseModel], name: str) -> fields.Key:
    key = fields.find(model, name)
    if key is None:
        meant = fields.closest(model, name)
        hint = f"did you mean --{meant}?" if meant else f"sections are {', '.join(model.model_fields)}"
        raise UserError(f"unknown setting --{name} on the command line; {hint}")
    if key.section is not None:
        settings = ", ".join(f"--{name}.{setting}" for setting in key.section.model_fields)
        raise UserError(f"--{name} is a section, not a setting; it holds {settings}")
    return key


def _is_text(annotation: Any) -> bool:
    members = [m for m in (get_args(annotation) if _is_union(annotation) else (annotation,)) if m is not type(None)]
    return all(_is_text_type(member) for member in members)


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) is not None and type(None) in get_args(annotation)


def _is_text_type(annotation: Any) -> bool:
    if get_origin(annotation) is Literal:
        return all(isinstance(value, str) for value in get_args(annotation))
    if not isinstance(annotation, type):
        return False
    return annotation in (str, Path) or (issubclass(annotation, Enum) and issubclass(annotation, str))


def _from_toml(text: str) -> Any:
    tree = tomllib.loads(f"value = {text}")
    if tree.keys() != {"value"}:
        raise ValueError("more than one value")
    return tree["value"]
