"""Dotted keys of a model: which exist, of which type, and which one was probably meant.

`trainer.objective.delta` is field `delta` of the section at `objective` of the section at `trainer`; below a field of
type `dict[str, X]` every key exists and has type X.
"""

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

SIMILAR_ENOUGH = 0.6
"""Share of matching characters from which a key counts as a likely slip."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One place in a configuration."""

    name: str
    """Dotted."""
    annotation: Any
    field: FieldInfo | None
    """None below a dict field, where keys are free."""

    @property
    def section(self) -> type[BaseModel] | None:
        """The model below this key, if it is a section."""
        return _model_in(self.annotation)

    @property
    def description(self) -> str:
        """Without the final full stop; empty if the field has none."""
        return ((self.field and self.field.description) or "").rstrip(".")

    @property
    def admits_none(self) -> bool:
        return type(None) in _members(self.annotation)


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[Key]:
    """Every fixed key in declaration order, sections before what they hold."""
    for name, field in model.model_fields.items():
        key = Key(name=prefix + name, annotation=field.annotation, field=field)
        yield key
        if key.section is not None:
            yield from keys(key.section, f"{key.name}.")


def find(model: type[BaseModel], name: str) -> Key | None:
    """The key called `name`, or None if there is no such place."""
    head, _, rest = name.partition(".")
    field = model.model_fields.get(head)
    if field is None:
        return None
    key = Key(name=head, annotation=field.annotation, field=field)
    if not rest:
        return key
    if key.section is not None:
        below = find(key.section, rest)
        return below and Key(name=name, annotation=below.annotation, field=below.field)
    value_type = _dict_value_in(key.annotation)
    return None if value_type is None or "." in rest else Key(name=name, annotation=value_type, field=None)


def closest(model: type[BaseModel], name: str) -> str | None:
    """The existing key that was probably meant by the unknown `name`: alike, or described by the same words."""
    words = name.rpartition(".")[2].replace("_", " ").lower()

    def likeness(key: Key) -> float:
        own = key.name.rpartition(".")[2].replace("_", " ").lower()
        as_whole = SequenceMatcher(None, name.lower(), key.name.lower()).ratio()
        as_word = SequenceMatcher(None, words, own).ratio() * 0.95
        is_described = len(words) > 3 and words in key.description.lower()
        return max(as_whole, as_word, 0.9 if is_described else 0.0) + 0.01 * as_whole

    candidates = (key for key in keys(model) if not name.startswith(f"{key.name}.") or key.section is None)
    best = max(candidates, key=likeness, default=None)
    return best.name if best is not None and likeness(best) >= SIMILAR_ENOUGH else None


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value for every leaf; an empty table is a leaf, tables in a list are numbered from 0."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            leaves |= flatten(value, f"{key}.")
        elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
            leaves |= flatten({str(i): item for i, item in enumerate(value)}, f"{key}.")
        else:
            leaves[key] = value
    return leaves


def _members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union; a plain type is its only one."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    models = [m for m in _members(annotation) if isinstance(m, type) and issubclass(m, BaseModel)]
    return models[0] if models else None


def _dict_value_in(annotation: Any) -> Any | None:
    dicts = [m for m in _members(annotation) if get_origin(m) is dict]
    return get_args(dicts[0])[1] if dicts else None
