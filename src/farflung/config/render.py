"""A config as TOML that loads back to the same config, and its digest."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from farflung.config.base import Config
from farflung.config.load import Loaded
from farflung.config.overrides import NONE_WORD
from farflung.wire.canonical import canonical_json, tagged_digest

DIGEST_DOMAIN = "farflung/config/1"

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def render(loaded: Loaded[Any]) -> str:
    """TOML with the source of each value as a comment."""
    return _document(loaded.config, loaded.sources)


def to_toml(config: Config) -> str:
    """TOML without comments."""
    return _document(config, {})


def digest(config: Config) -> str:
    """Hex digest of every value; equal exactly for equal configs."""
    return tagged_digest(DIGEST_DOMAIN, canonical_json(config.model_dump(mode="json")))


def _document(config: Config, sources: Mapping[str, str]) -> str:
    lines = [*_table(config.model_dump(mode="json"), "", sources)]
    return "\n".join(lines).strip("\n") + "\n"


def _table(table: Mapping[str, Any], prefix: str, sources: Mapping[str, str]) -> Iterator[str]:
    """Values first, then the tables below, as TOML needs it."""
    values = {name: value for name, value in table.items() if not _is_table(value)}
    if prefix and (values or not table):
        yield ""
        yield f"[{prefix}]"
    settings = [f"{_key(name)} = {_value(value)}" for name, value in values.items()]
    width = min(48, max((len(setting) for setting in settings), default=0))
    for name, setting in zip(values, settings, strict=True):
        source = _source(f"{prefix}.{name}" if prefix else name, sources)
        yield f"{setting:<{width}}  # {source}" if source else setting
    for name, value in table.items():
        if _is_table(value):
            yield from _table(value, f"{prefix}.{_key(name)}" if prefix else _key(name), sources)


def _source(key: str, sources: Mapping[str, str]) -> str | None:
    """Of the key, or of the first thing in it: tables in a list have sources of their own."""
    below = (source for name, source in sources.items() if name.startswith(f"{key}."))
    return sources.get(key) or next(below, None)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value)


def _value(value: Any) -> str:
    match value:
        case None:
            return json.dumps(NONE_WORD)
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str() | PurePath():
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case Mapping():
            return "{" + ", ".join(f"{_key(name)} = {_value(item)}" for name, item in value.items()) + "}"
        case _:
            return "[" + ", ".join(_value(item) for item in value) + "]"


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)
