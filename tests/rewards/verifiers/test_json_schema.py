"""JSON Schema adherence, beside the library without bounds and against its known weaknesses."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from farflung.rewards.verifiers.json_schema import MAX_STEPS, grade_json_schema
from farflung.rewards.verifiers.json_text import MAX_JSON_CHARS
from farflung.rewards.verifiers.schema.nodes import OverBudget, Work
from farflung.rewards.verifiers.schema.patterns import num_states
from farflung.rewards.verifiers.schema.reading import MAX_SCHEMA_CHARS, read_schema


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
        '{"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"$ref": "#/$defs/x"}}}',
        '{"items": {"$ref": "#/$defs/x"}, "$defs": {"x": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/x"}]}}}',
        '{"items": {"if": true, "then": {"not": {"$ref": "#/items"}}}}',
        '{"$ref": "#/x", "x": {"minimum": "a"}}',
        '{"$ref": "#/x", "x": 1}',
        '{"$ref": 1}',
        '{"items": {"$id": "https://example.com/x"}}',
        '{"items": [true]}',
        '{"required": [1]}',
        '{"required": "a"}',
        '{"properties": []}',
        '{"enum": 1}',
        '{"minLength": -1}',
        '{"minimum": true}',
        '{"multipleOf": 0}',
        '{"anyOf": []}',
        '{"pattern": "(.{0,200}a){20}!"}',
        '{"pattern": "(?x)(.{0, 200 }a){ 20 }!"}',
        json.dumps(
            {"$ref": "#/$defs/0", "$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(99)} | {"99": {}}}
        ),
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


NAMES = {f"k{number}": 1 for number in range(10_000)}
NESTED = json.loads("[" * 60 + '"' + "a" * 60_000 + '"' + "]" * 60)


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        (
            {"patternProperties": {f"^k{n}x": True for n in range(1500)}, "additionalProperties": {"type": "integer"}},
            NAMES,
        ),
        ({"patternProperties": {f"^k{n}x": True for n in range(1500)}}, NAMES),
        ({"uniqueItems": True, "items": {"$ref": "#"}, "minItems": 1}, [[["x"] * 500] * 4] * 15),
        ({"anyOf": [*[{"const": "b"}] * 1000, {"items": {"$ref": "#"}}]}, NESTED),
        ({"pattern": "(.{0,90}a){20}!"}, "a" * 100_000),
        ({"propertyNames": {"allOf": [{"pattern": "(.{0,90}a){2}"}] * 500}}, NAMES),
        ({"items": {"oneOf": [{"required": ["x"] * 2000}, *[False] * 2000, True]}}, [{}] * 40_000),
        ({"allOf": [{"items": {"multipleOf": 1e-300}}] * 90}, [1e300] * 15_000),
        ({"items": {"contains": {"enum": [["y"] * 50] * 100}, "minContains": 0}}, [["y"] * 49] * 600),
    ],
)
def test_what_once_took_seconds_to_minutes_ends_within_the_budget(schema: Any, document: Any) -> None:
    text, budget = json.dumps(schema, separators=(",", ":")), json.dumps(document, separators=(",", ":"))
    assert len(text) < MAX_SCHEMA_CHARS
    assert len(budget) < MAX_JSON_CHARS
    work = Work(MAX_STEPS)
    try:
        read_schema(text).holds(document, work)
    except OverBudget:
        assert grade_json_schema(text, budget).rule == "too_many_steps"
    else:
        assert grade_json_schema(text, budget).verdict is not None


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({"items": {"type": "integer", "minimum": 0, "maximum": 9, "enum": list(range(10))}}, list(range(10)) * 5000),
        (json.loads(OWNER), {"pets": [{"name": "Rex", "age": 3, "tags": ["a", "b"]}] * 2500, "note": "x" * 1000}),
        ({"additionalProperties": {"type": "integer"}, "propertyNames": {"pattern": "^k[0-9]{1,6}$"}}, NAMES),
        ({"items": {"enum": ["x", *map(str, range(3000))]}}, ["x"] * 25_000),
    ],
)
def test_long_documents_of_an_ordinary_schema_are_read_to_their_end(schema: Any, document: Any) -> None:
    assert grade_json_schema(json.dumps(schema), json.dumps(document, separators=(",", ":"))).verdict == 1.0


@pytest.mark.parametrize("reference", ["#/$defs/a~1b%20c", "#here", "https://example.com/s#here", "#/$defs/list/0"])
def test_references_within_the_schema_are_followed(reference: str) -> None:
    number = {"type": "number", "$anchor": "here"}
    schema = {
        "$id": "https://example.com/s",
        "$ref": reference,
        "$defs": {"a/b c": number, "list": [{"type": "number"}]},
    }
    assert grade_json_schema(json.dumps(schema), "1").verdict == 1.0
    assert grade_json_schema(json.dumps(schema), '"1"').verdict == 0.0


@pytest.mark.parametrize(
    ("pattern", "at_least"),
    [
        ("abc", 3),
        ("a{5}", 5),
        ("(ab){50}", 100),
        ("((a{10}){10}){10}", 1000),
        ("(.{0,200}a){20}", 40_000),
        (r"[\]a-z]{30}", 300),
        ("[]x]{7}", 70),
        ("a{2,}", 2),
        ("a{2}{3}{4}", 24),
        (r"\w{100}", 1000),
    ],
)
def test_the_states_of_a_pattern_are_counted_from_above(pattern: str, at_least: int) -> None:
    assert at_least <= num_states(pattern) <= 4 * at_least + 40


@given(st.text("ab(){}[]\\|*+?.,0123456789 ^$", max_size=30))
def test_states_of_any_text_are_some_number(pattern: str) -> None:
    assert num_states(pattern) >= 0


def test_an_answer_that_is_nested_too_deeply_for_its_schema_is_wrong() -> None:
    schema: dict[str, Any] = {"items": {"$ref": "#"}}
    for _ in range(12):
        schema = {"anyOf": [schema]}
    decision = grade_json_schema(json.dumps(schema), "[" * 60 + "]" * 60)
    assert (decision.verdict, decision.rule) == (0.0, "nested_too_deeply")


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
            "else": inner,
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "contains": inner,
            "minContains": st.integers(0, 2),
            "maxContains": st.integers(0, 2),
            "minItems": st.integers(0, 2),
            "maxProperties": st.integers(0, 2),
            "minLength": st.integers(0, 2),
            "enum": st.lists(_values, min_size=1, max_size=3),
            "propertyNames": inner,
            "dependentSchemas": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "dependentRequired": st.dictionaries(st.sampled_from("ab"), st.just(["b"]), max_size=2),
        },
    ),
    max_leaves=8,
)


@given(schema=_schemas.filter(lambda each: isinstance(each, dict)), value=_values)
@settings(max_examples=150)
def test_the_bounded_check_agrees_with_the_library(schema: dict[str, Any], value: Any) -> None:
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert grade_json_schema(json.dumps(schema), json.dumps(value)).verdict == float(expected)


def test_multiples_are_exact() -> None:
    schema = '{"type": "object", "properties": {"a": {"type": "number", "multipleOf": 0.01}}}'
    assert grade_json_schema(schema, '{"a": 1' + "0" * 500 + "}").verdict == 1.0
    assert grade_json_schema(schema, '{"a": 19.99}').verdict == 1.0
    assert grade_json_schema(schema, '{"a": 19.995}').verdict == 0.0
