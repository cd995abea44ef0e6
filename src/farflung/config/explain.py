"""Validation failures as sentences with place, value, rule and fix.

pool.group_size is 1 (configs/x.toml:7); it must be at least 2, for example 8 (the default)
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from farflung.config import fields
from farflung.config.overrides import NONE_WORD

Where = Callable[[str], str]
"""Dotted key -> where its value was written."""

MAX_SHOWN_CHARS = 80

_TYPE_RULES = {
    "string_type": "text in quotes",
    "path_type": "a path in quotes",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list such as [1, 2]",
    "list_type": "a list such as [1, 2]",
    "dict_type": "a table such as {a = 1}",
    "model_type": "a section",
    "finite_number": "a finite number",
}

_BOUND_RULES = {
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "literal_error": "one of {expected}",
    "enum": "one of {expected}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text of the form {pattern}",
}


def explain(error: ValidationError, model: type[BaseModel], tree: Mapping[str, Any], where: Where) -> str:
    """One sentence, or a list of them with their number above.

    Args:
        model: what `tree` was validated against.
        tree: what was written, defaults left out.
        where: source of a dotted key.
    """
    by_key: dict[str, list[ErrorDetails]] = {}
    for details in error.errors(include_url=False):
        by_key.setdefault(_key(details, tree), []).append(details)
    sentences = [_sentence(key, details, model, tree, where) for key, details in by_key.items()]
    if len(sentences) == 1:
        return sentences[0]
    return "\n".join([f"{len(sentences)} settings are wrong:", *(f"  - {sentence}" for sentence in sentences)])


def _key(details: ErrorDetails, tree: Mapping[str, Any]) -> str:
    """The dotted key that an error is about: its location without the names of union members."""
    parts: list[str] = []
    value: Any = tree
    for part in details["loc"]:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            if details["type"] != "missing":
                break
        parts.append(str(part))
    return ".".join(parts)


def _sentence(
    key: str, several: list[ErrorDetails], model: type[BaseModel], tree: Mapping[str, Any], where: Where
) -> str:
    details = several[0]
    match details["type"]:
        case "value_error":
            place = f"[{key}] " if key else ""
            return f"{place}{details['ctx']['error']}"
        case "extra_forbidden":
            return _unknown_sentence(key, model, where)
        case "missing":
            return _missing_sentence(key, model)
    rule = " or ".join(dict.fromkeys(_rule(item) for item in several))
    value = _shown(fields.flatten(tree).get(key, details["input"]))
    return f"{key} is {value} ({where(key)}); it must be {rule}{_example(key, model)}"


def _rule(details: ErrorDetails) -> str:
    kind = details["type"]
    if kind in _TYPE_RULES:
        return _TYPE_RULES[kind]
    if kind in _BOUND_RULES:
        bounds = {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in details["ctx"].items()}
        return _BOUND_RULES[kind].format_map(bounds)
    message = details["msg"]
    return f"valid: {message[:1].lower()}{message[1:]}"


def _unknown_sentence(key: str, model: type[BaseModel], where: Where) -> str:
    meant = fields.closest(model, key)
    if meant:
        hint = f"did you mean {meant}?"
    else:
        section = fields.find(model, key.rpartition(".")[0]) if "." in key else None
        known = (section.section if section and section.section else model).model_fields
        hint = f"known there: {', '.join(known)}"
    return f"unknown setting {key} ({where(key)}); {hint}"


def _missing_sentence(key: str, model: type[BaseModel]) -> str:
    section, _, name = key.rpartition(".")
    found = fields.find(model, key)
    description = f" ({found.description})" if found and found.description else ""
    table = f" under [{section}]" if section else ""
    return f"{key} is missing{description}; write {name} = ...{table}, or --{key} on the command line"


def _example(key: str, model: type[BaseModel]) -> str:
    """The default, which keeps the rules, as an example; else what the field is."""
    found = fields.find(model, key)
    if found is None or found.field is None:
        return ""
    default = found.field.get_default(call_default_factory=True, validated_data={})
    if not found.field.is_required() and not isinstance(default, BaseModel | None):
        return f", for example {_shown(default)} (the default)"
    return f" ({found.description})" if found.description else ""


def _shown(value: Any) -> str:
    """As it would be written, shortened."""
    text = NONE_WORD if value is None else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 3]}..."
