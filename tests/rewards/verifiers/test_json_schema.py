"""JSON Schema adherence, beside the library without bounds and against its known weaknesses."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from farflung.rewards.verifiers.json_schema import grade_json_schema


class Pet(BaseModel):
    name: str = Field(min_length=1, pattern="^[A-Z]")
    age: int = Field(ge=0, lt=40)
    tags: list[str] = Field(default=[], max_length=3)


class Owner(BaseModel):
    pets: list[Pet]
    note: str | None = None


OWNER = json.dumps(Owner.model_json_schema())


@pytest.mark.parametrize(
    ("document", "verdict"),
    [
        ('{"pets": [{"name": "Rex", "age": 3}]}', 1.0),
        ('{"pets": [], "note": null}', 1.0),
        ('{"pets": [{"name": "rex", "age": 3}]}', 0.0),
        ('{"pets": [{"name": "Rex", "age": 3.5}]}', 0.0),
        ('{"pets": [{"name": "Rex", "age": true}]}', 0.0),
        ('{"pets": [{"name": "Rex", "age": 40}]}', 0.0),
        ('{"pets": [{"name": "Rex", "age": 3, "tags": ["a", "b", "c", "d"]}]}', 0.0),
        ("{}", 0.0),
        ('{"pets": []} and more', 0.0),
        ('{"pets": [], "pets": []}', 0.0),
        ('Sure:\n```json\n{"pets": []}\n```', 1.0),
    ],
)
def test_a_pydantic_model_is_kept_to_or_not(document: str, verdict: float) -> None:
    assert grade_json_schema(OWNER, document).verdict == verdict


@pytest.mark.parametrize(
    "schema",
    [
        "[]",
        "true",
        '{"type": "colour"}',
        '{"$ref": "https://example.com/schema.json"}',
        '{"$ref": "file:///etc/passwd"}',
        '{"$ref": "#/$defs/missing"}',
        '{"pattern": "(a)\\\\1"}',
        '{"pattern": "(?=a)a"}',
        '{"pattern": "("}',
        '{"anyOf": [true, {"patternProperties": {"(?<!x)y": true}}]}',
        '{"unevaluatedProperties": false}',
        '{"$ref": "#"}',
        json.dumps({"description": "x" * 40_000}),
    ],
)
def test_a_schema_that_cannot_be_used_is_no_grade(schema: str) -> None:
    assert grade_json_schema(schema, '"aa"').verdict is None


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    schema = '{"$ref": "http://127.0.0.1:1/schema"}'
    assert grade_json_schema(schema, "1").verdict is None


def test_a_pattern_that_backtracking_engines_hang_on_is_decided_at_once() -> None:
    document = json.dumps("a" * 100_000 + "!")
    assert grade_json_schema('{"pattern": "^(a+)+$"}', document).verdict == 0.0


def test_a_schema_with_exponentially_many_ways_ends_within_the_budget() -> None:
    node = {"anyOf": [{"items": {"$ref": "#/$defs/n"}, "minItems": 1}, {"items": {"$ref": "#/$defs/n"}, "maxItems": 1}]}
    schema = json.dumps({"$defs": {"n": {"type": "array", **node}}, "$ref": "#/$defs/n"})
    deep = "[" * 40 + "1" + "]" * 40
    decision = grade_json_schema(schema, deep)
    assert (decision.verdict, decision.rule) == (0.0, "too_many_steps")


def test_unique_items_of_ten_thousand_lists_are_found_by_hash() -> None:
    items = [[number] for number in range(10_000)]
    schema = '{"uniqueItems": true}'
    assert grade_json_schema(schema, json.dumps(items)).verdict == 1.0
    assert grade_json_schema(schema, json.dumps([*items, [0.0]])).verdict == 0.0


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text("ab1", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
_schemas: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.booleans(),
        st.sampled_from(["string", "integer", "number", "object", "array", "null"]).map(lambda name: {"type": name}),
        st.fixed_dictionaries(
            {}, optional={"minimum": st.integers(-3, 3), "pattern": st.sampled_from(["^a", "b$", "[0-9]"])}
        ),
        _values.map(lambda value: {"const": value}),
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "items": inner,
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=2),
            "additionalProperties": inner,
            "uniqueItems": st.booleans(),
            "required": st.lists(st.sampled_from("ab"), unique=True, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
        },
    ),
    max_leaves=8,
)


@given(schema=_schemas.filter(lambda each: isinstance(each, dict)), value=_values)
@settings(max_examples=150)
def test_the_bounded_check_agrees_with_the_library(schema: dict[str, Any], value: Any) -> None:
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert grade_json_schema(json.dumps(schema), json.dumps(value)).verdict == float(expected)


def test_an_integer_that_no_float_holds_is_no_multiple_of_a_fraction() -> None:
    schema = '{"type": "object", "properties": {"a": {"type": "number", "multipleOf": 0.01}}}'
    assert grade_json_schema(schema, '{"a": 1' + "0" * 500 + "}").verdict == 0.0
