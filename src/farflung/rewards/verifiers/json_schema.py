"""JSON Schema adherence: a document that keeps to a schema, such as the one that a pydantic model writes of itself.

    reference   the schema (draft 2020-12) as JSON text, at most `MAX_SCHEMA_CHARS`
    1.0         the document is valid

The `jsonschema` library checks, within bounds that it does not have by itself: every keyword that it looks at is one
step of a budget that grows with document and schema (a recursive `anyOf` can take exponentially many), patterns run in
an engine without backtracking (pydantic's), unique items are found by hash, and a `$ref` reaches only what stands in
the schema itself: nothing is ever fetched. `format` is an annotation, as the specification has it.

A schema that cannot be used, has a reference that leads outside, one of the keywords `NOT_BOUNDED`, or a pattern with
look-around or back-references is "cannot be graded"; an answer that uses up the budget is 0.
"""

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from pydantic_core import SchemaError as CoreSchemaError
from pydantic_core import SchemaValidator, core_schema
from pydantic_core import ValidationError as CoreValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from farflung.rewards.decision import Decision
from farflung.rewards.verifiers.json_text import NotJson, read_json
from farflung.rewards.verifiers.json_value import canonical_value
from farflung.rewards.verifiers.spoken import answer_text

MAX_SCHEMA_CHARS = 1 << 15
STEPS_PER_CHAR = 4
"""Keywords looked at for each character of document and schema; an ordinary schema takes less than one."""
MAX_STEPS = 200_000
"""About a second."""
CONTROLS: tuple[Any, ...] = (None, "", 0, [], {})
"""Documents that every schema is done with at once."""
MAX_CONTROL_STEPS = 20_000
CHARS_PER_STEP = 64
"""Items or characters that a keyword may read for one more step."""
NOT_BOUNDED = frozenset({"unevaluatedItems", "unevaluatedProperties", "$dynamicRef"})
"""Keywords whose cost the budget does not see."""
NUM_CACHED = 256

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]
_steps_left: ContextVar[int] = ContextVar("steps_left")


class _Unusable(Exception):
    """The schema cannot be graded against."""


class _OverBudget(Exception):
    """The answer takes more steps than it may."""


def grade_json_schema(reference: str, completion: str) -> Decision:
    """1.0 for a document that is valid under the schema `reference`; None if that is no usable schema."""
    try:
        _validator(reference)
    except _Unusable as problem:
        return Decision(None, "gold_unparseable", str(problem))
    text = answer_text(completion)
    if not text.strip():
        return Decision(0.0, "no_answer")
    try:
        document = read_json(text)
    except NotJson as problem:
        return Decision(0.0, "not_json", str(problem))
    return grade_document(reference, document, len(text))


def grade_document(reference: str, document: Any, num_chars: int) -> Decision:
    """The same for a value that was read already, of a text of `num_chars` characters."""
    try:
        validator = _validator(reference)
    except _Unusable as problem:
        return Decision(None, "gold_unparseable", str(problem))
    token = _steps_left.set(min(MAX_STEPS, STEPS_PER_CHAR * (num_chars + len(reference))))
    try:
        error = next(iter(validator.iter_errors(document)), None)
    except _OverBudget:
        return Decision(0.0, "too_many_steps")
    except (_Unusable, Unresolvable) as problem:
        return Decision(None, "gold_unparseable", str(problem)[:200])
    except RecursionError:
        return Decision(None, "gold_unparseable", "the schema refers to itself without end")
    except OverflowError:  # multipleOf a fraction, and an integer that no float holds
        return Decision(0.0, "number_over_limits")
    finally:
        _steps_left.reset(token)
    if error is None:
        return Decision(1.0, "valid")
    return Decision(0.0, "invalid", f"keyword {error.validator}")


@lru_cache(NUM_CACHED)
def _validator(reference: str) -> Validator:
    if len(reference) > MAX_SCHEMA_CHARS:
        raise _Unusable(f"the schema has {len(reference)} characters, at most {MAX_SCHEMA_CHARS}")
    try:
        schema = read_json(reference)
        if not isinstance(schema, dict):
            raise _Unusable("a schema is a JSON object")
        Draft202012Validator.check_schema(schema)
    except (NotJson, SchemaError, RecursionError) as problem:
        raise _Unusable(str(problem)[:200]) from None
    for part in _parts(schema):
        if unbounded := NOT_BOUNDED & part.keys():
            raise _Unusable(f"keyword {min(unbounded)} is not supported")
        for pattern in _patterns(part):
            _pattern(pattern)
    validator: Validator = _Bounded(schema, registry=Registry())  # a registry without a way to fetch
    for control in CONTROLS:
        _check_control(validator, control)
    return validator


def _check_control(validator: Validator, control: Any) -> None:
    """A schema that is not done with a trivial document leads in circles, or outside."""
    token = _steps_left.set(MAX_CONTROL_STEPS)
    try:
        next(iter(validator.iter_errors(control)), None)
    except (_OverBudget, RecursionError):
        raise _Unusable("the schema refers to itself without end") from None
    except Unresolvable as problem:
        raise _Unusable(str(problem)[:200]) from None
    finally:
        _steps_left.reset(token)


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object of the schema, so that what cannot be used is found whatever the answer."""
    if isinstance(schema, dict):
        yield schema
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _parts(each)


def _patterns(part: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(part.get("pattern"), str):
        yield part["pattern"]
    if isinstance(part.get("patternProperties"), dict):
        yield from part["patternProperties"]


@lru_cache(NUM_CACHED)
def _pattern(pattern: str) -> SchemaValidator:
    """Raises `_Unusable` for what an engine without backtracking does not know."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True))
    except CoreSchemaError:
        raise _Unusable(f"pattern {pattern[:80]!r} needs an engine with backtracking, or is none") from None


def _matches(pattern: str, text: str) -> bool:
    try:
        _pattern(pattern).validate_python(text)
    except CoreValidationError:
        return False
    return True


def _counted(keyword: Keyword) -> Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
        size = len(instance) if isinstance(instance, str | list | dict) else 0
        left = _steps_left.get() - 1 - size // CHARS_PER_STEP
        if left < 0:
            raise _OverBudget
        _steps_left.set(left)
        return keyword(validator, value, instance, schema)

    return counted


def _keyword_pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _matches(pattern, instance):
        yield ValidationError("the pattern does not match")


def _keyword_pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _schema: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        for key, value in instance.items():
            if _matches(pattern, key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _keyword_additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key, value in instance.items():
        if key not in named and not any(_matches(pattern, key) for pattern in patterns):
            if allowed is False:
                yield ValidationError("a property that is not named")
            else:
                yield from validator.descend(value, allowed, path=key)


def _keyword_unique_items(validator: Any, is_unique: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if not is_unique or not validator.is_type(instance, "array"):
        return
    if len({canonical_value(each) for each in instance}) != len(instance):
        yield ValidationError("an item comes twice")


_KEYWORDS: dict[str, Keyword] = {
    **Draft202012Validator.VALIDATORS,
    "pattern": _keyword_pattern,
    "patternProperties": _keyword_pattern_properties,
    "additionalProperties": _keyword_additional_properties,
    "uniqueItems": _keyword_unique_items,
}
_Bounded = extend(Draft202012Validator, {name: _counted(keyword) for name, keyword in _KEYWORDS.items()})
