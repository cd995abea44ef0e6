"""TOML file plus command-line overrides -> one validated config that knows where each value came from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from farflung.config import fields
from farflung.config.base import Config
from farflung.config.explain import explain
from farflung.config.overrides import NONE_WORD, parse_overrides
from farflung.config.toml_file import TomlFile, read_toml
from farflung.errors import UserError

C = TypeVar("C", bound=Config)

DEFAULT = "default"
COMMAND_LINE = "command line"


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded(Generic[C]):
    config: C
    sources: dict[str, str] = field(default_factory=dict)
    """Dotted key of every setting -> "default", "<path>:<line>" or "command line"."""


def load(model: type[C], path: Path | None, overrides: Sequence[str] = ()) -> Loaded[C]:
    """Read, merge and validate.

    Args:
        path: TOML file, or None for defaults alone.
        overrides: `["--trainer.optimizer.lr", "1e-6", "--run.seed=3"]`, the later of two wins.

    Raises:
        UserError: in one message everything that is wrong, each with place, value, rule and fix.
    """
    file = read_toml(path) if path is not None else None
    changes = parse_overrides(model, overrides)
    tree = merge(_with_none(model, file.tree) if file else {}, changes)
    try:
        # JSON in strict mode: lists become tuples and text becomes paths, but "8" or true never become the number 8.
        config = model.model_validate_json(json.dumps(tree, default=str), strict=True)
    except ValidationError as error:
        raise UserError(explain(error, model, tree, lambda key: _source(key, file, changes))) from error
    settings = fields.flatten(config.model_dump())
    return Loaded(config=config, sources={key: _source(key, file, changes) for key in settings})


def merge(tree: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `tree` with each dotted key of `changes` set."""
    merged: dict[str, Any] = {
        name: merge(value, {}) if isinstance(value, dict) else value for name, value in tree.items()
    }
    for key, value in changes.items():
        *sections, name = key.split(".")
        table = merged
        for section in sections:
            if not isinstance(table.get(section), dict):
                table[section] = {}
            table = table[section]
        table[name] = value
    return merged


def _source(key: str, file: TomlFile | None, changes: Mapping[str, Any]) -> str:
    """Where the value at `key` was written; a table set whole is the source of what it holds."""
    for name in _upwards(key):
        if name in changes:
            return COMMAND_LINE
    written = fields.flatten(file.tree) if file else {}
    is_written = any(name in written for name in _upwards(key)) or any(name.startswith(f"{key}.") for name in written)
    return file.where(key) if file and is_written else DEFAULT


def _upwards(key: str) -> list[str]:
    """The key itself and every table that holds it."""
    parts = key.split(".")
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _with_none(model: type[Config], tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`tree` with the word "none" turned into None wherever the field admits it."""
    result: dict[str, Any] = {}
    for name, value in tree.items():
        key = fields.find(model, prefix + name)
        if isinstance(value, dict):
            result[name] = _with_none(model, value, f"{prefix}{name}.")
        elif isinstance(value, str) and value.lower() == NONE_WORD and key is not None and key.admits_none:
            result[name] = None
        else:
            result[name] = value
    return result
