"""Each keyword of JSON Schema as a check. A builder takes the keyword's value, its schema, and a way to read schemas.

Source: JSON Schema Validation and Core, draft 2020-12. `format` and the `content*` keywords are annotations, as there.
Numbers are exact: 19.99 is a multiple of 0.01. Text is counted in code points. true is no 1.
"""

from collections.abc import Callable, Mapping, Sized
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

from farflung.rewards.verifiers.json_value import canonical_value
from farflung.rewards.verifiers.schema.nodes import Check, Node, UnusableSchema, Work
from farflung.rewards.verifiers.schema.patterns import read_pattern

TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_FRACTION_STEPS = 40
"""Of a division of two numbers of some hundred digits, as 1e-300 has."""


class Read(Protocol):
    def __call__(self, schema: Any, *, in_place: bool = False) -> Node:
        """The node of a schema; `in_place` if it looks at the same part of the document as the one that asks."""
        ...


Builder: TypeAlias = Callable[[Any, Mapping[str, Any], Read], Check]


def types_of(instance: Any) -> frozenset[str]:
    """Names of its types; a whole number with a point is an integer as well."""
    match instance:
        case None:
            return frozenset({"null"})
        case bool():
            return frozenset({"boolean"})
        case int():
            return frozenset({"integer", "number"})
        case float():
            return frozenset({"integer", "number"} if instance.is_integer() else {"number"})
        case str():
            return frozenset({"string"})
        case list():
            return frozenset({"array"})
    return frozenset({"object"})


def _type(value: Any, _schema: Mapping[str, Any], _read: Read) -> Check:
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name in TYPES for name in names):
        raise UnusableSchema("a value of type names no types")
    wanted = frozenset(names)
    return lambda instance, _: not wanted.isdisjoint(types_of(instance))


def _enum(value: Any, _schema: Mapping[str, Any], _read: Read) -> Check:
    wanted = {canonical_value(each) for each in _list(value, "enum")}

    def check(instance: Any, work: Work) -> bool:
        work.spend_on(instance)
        return canonical_value(instance) in wanted

    return check


def _const(value: Any, schema: Mapping[str, Any], read: Read) -> Check:
    return _enum([value], schema, read)


def _on_number(keyword: str, holds: Callable[[Any, Any], bool]) -> Builder:
    def build(value: Any, _schema: Mapping[str, Any], _read: Read) -> Check:
        if not _is_number(value):
            raise UnusableSchema(f"a value of {keyword} is no number")
        return lambda instance, _: not _is_number(instance) or holds(instance, value)

    return build


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _multiple_of(value: Any, _schema: Mapping[str, Any], _read: Read) -> Check:
    if not _is_number(value) or value <= 0:
        raise UnusableSchema("a value of multipleOf is no positive number")
    step = Fraction(repr(value))

    def check(instance: Any, work: Work) -> bool:
        if not _is_number(instance):
            return True
        work.spend(_FRACTION_STEPS)
        return (Fraction(repr(instance)) / step).denominator == 1

    return check


def _on_size(keyword: str, kind: type[Sized], *, at_least: bool) -> Builder:
    def build(value: Any, _schema: Mapping[str, Any], _read: Read) -> Check:
        bound = _count(value, keyword)
        if at_least:
            return lambda instance, _: not isinstance(instance, kind) or len(instance) >= bound
        return lambda instance, _: not isinstance(instance, kind) or len(instance) <= bound

    return build


def _pattern(value: Any, _schema: Mapping[str, Any], _read: Read) -> Check:
    pattern = read_pattern(_text(value, "pattern"))

    def check(instance: Any, work: Work) -> bool:
        if not isinstance(instance, str):
            return True
        work.spend(pattern.cost(instance))
        return pattern.is_in(instance)

    return check


def _unique_items(value: Any, _schema: Mapping[str, Any], _read: Read) -> Check:
    if not isinstance(value, bool):
        raise UnusableSchema("a value of uniqueItems is neither true nor false")

    def check(instance: Any, work: Work) -> bool:
        if not value or not isinstance(instance, list):
            return True
        work.spend_on(instance)
        return len({canonical_value(each) for each in instance}) == len(instance)

    return check


def _items(value: Any, schema: Mapping[str, Any], read: Read) -> Check:
    node, num_before = read(value), len(_list(schema.get("prefixItems", []), "prefixItems"))

    def check(instance: Any, work: Work) -> bool:
        return not isinstance(instance, list) or all(node.holds(each, work) for each in instance[num_before:])

    return check


def _prefix_items(value: Any, _schema: Mapping[str, Any], read: Read) -> Check:
    nodes = [read(each) for each in _list(value, "prefixItems")]

    def check(instance: Any, work: Work) -> bool:
        pairs = zip(nodes, instance, strict=False) if isinstance(instance, list) else ()
        return all(node.holds(each, work) for node, each in pairs)

    return check


def _contains(value: Any, schema: Mapping[str, Any], read: Read) -> Check:
    node = read(value)
    least = _count(schema.get("minContains", 1), "minContains")
    most = _count(schema["maxContains"], "maxContains") if "maxContains" in schema else None

    def check(instance: Any, work: Work) -> bool:
        if not isinstance(instance, list):
            return True
        found = sum(node.holds(each, work) for each in instance)
        return found >= least and (most is None or found <= most)

    return check


def _required(value: Any, _schema: Mapping[str, Any], _read: Read) -> Check:
    names = _texts(value, "required")

    def check(instance: Any, work: Work) -> bool:
        work.spend(len(names) // 16)
        return not isinstance(instance, dict) or all(name in instance for name in names)

    return check


def _dependent_required(value: Any, _schema: Mapping[str, Any], _read: Read) -> Check:
    needed = {name: _texts(names, "dependentRequired") for name, names in _map(value, "dependentRequired").items()}
    num_names = sum(1 + len(names) for names in needed.values())

    def check(instance: Any, work: Work) -> bool:
        if not isinstance(instance, dict):
            return True
        work.spend(num_names // 16)
        return all(name not in instance or all(each in instance for each in names) for name, names in needed.items())

    return check


def _properties(value: Any, _schema: Mapping[str, Any], read: Read) -> Check:
    nodes = {name: read(each) for name, each in _map(value, "properties").items()}

    def check(instance: Any, work: Work) -> bool:
        if not isinstance(instance, dict):
            return True
        work.spend(len(nodes) // 16)
        return all(name not in instance or node.holds(instance[name], work) for name, node in nodes.items())

    return check


def _pattern_properties(value: Any, _schema: Mapping[str, Any], read: Read) -> Check:
    nodes = [(read_pattern(text), read(each)) for text, each in _map(value, "patternProperties").items()]

    def check(instance: Any, work: Work) -> bool:
        if not isinstance(instance, dict):
            return True
        for pattern, node in nodes:
            for name, each in instance.items():
                work.spend(pattern.cost(name))
                if pattern.is_in(name) and not node.holds(each, work):
                    return False
        return True

    return check


def _additional_properties(value: Any, schema: Mapping[str, Any], read: Read) -> Check:
    node, named = read(value), _map(schema.get("properties", {}), "properties")
    patterns = [read_pattern(text) for text in _map(schema.get("patternProperties", {}), "patternProperties")]

    def is_covered(name: str, work: Work) -> bool:
        if name in named:
            return True
        work.spend(1 + sum(pattern.cost(name) for pattern in patterns))
        return any(pattern.is_in(name) for pattern in patterns)

    def check(instance: Any, work: Work) -> bool:
        if not isinstance(instance, dict):
            return True
        return all(is_covered(name, work) or node.holds(each, work) for name, each in instance.items())

    return check


def _property_names(value: Any, _schema: Mapping[str, Any], read: Read) -> Check:
    node = read(value)
    return lambda instance, work: not isinstance(instance, dict) or all(node.holds(name, work) for name in instance)


def _dependent_schemas(value: Any, _schema: Mapping[str, Any], read: Read) -> Check:
    nodes = {name: read(each, in_place=True) for name, each in _map(value, "dependentSchemas").items()}

    def check(instance: Any, work: Work) -> bool:
        if not isinstance(instance, dict):
            return True
        work.spend(len(nodes) // 16)
        return all(name not in instance or node.holds(instance, work) for name, node in nodes.items())

    return check


def _several(keyword: str, is_enough: Callable[[list[Node], Any, Work], bool]) -> Builder:
    def build(value: Any, _schema: Mapping[str, Any], read: Read) -> Check:
        nodes = [read(each, in_place=True) for each in _list(value, keyword)]
        if not nodes:
            raise UnusableSchema(f"a value of {keyword} is empty")
        return lambda instance, work: is_enough(nodes, instance, work)

    return build


def _not(value: Any, _schema: Mapping[str, Any], read: Read) -> Check:
    node = read(value, in_place=True)
    return lambda instance, work: not node.holds(instance, work)


def _if(value: Any, schema: Mapping[str, Any], read: Read) -> Check:
    condition, then, otherwise = (
        read(each, in_place=True) for each in (value, schema.get("then", True), schema.get("else", True))
    )
    return lambda instance, work: (then if condition.holds(instance, work) else otherwise).holds(instance, work)


def _list(value: Any, keyword: str) -> list[Any]:
    if not isinstance(value, list):
        raise UnusableSchema(f"a value of {keyword} is no list")
    return value


def _map(value: Any, keyword: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnusableSchema(f"a value of {keyword} is no object")
    return value


def _text(value: Any, keyword: str) -> str:
    if not isinstance(value, str):
        raise UnusableSchema(f"a value of {keyword} is no text")
    return value


def _texts(value: Any, keyword: str) -> list[str]:
    return [_text(each, keyword) for each in _list(value, keyword)]


def _count(value: Any, keyword: str) -> int:
    if not _is_number(value) or value < 0 or value != int(value):
        raise UnusableSchema(f"a value of {keyword} is no count")
    return int(value)


BUILDERS: dict[str, Builder] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "multipleOf": _multiple_of,
    "minimum": _on_number("minimum", lambda instance, bound: bool(instance >= bound)),
    "maximum": _on_number("maximum", lambda instance, bound: bool(instance <= bound)),
    "exclusiveMinimum": _on_number("exclusiveMinimum", lambda instance, bound: bool(instance > bound)),
    "exclusiveMaximum": _on_number("exclusiveMaximum", lambda instance, bound: bool(instance < bound)),
    "minLength": _on_size("minLength", str, at_least=True),
    "maxLength": _on_size("maxLength", str, at_least=False),
    "minItems": _on_size("minItems", list, at_least=True),
    "maxItems": _on_size("maxItems", list, at_least=False),
    "minProperties": _on_size("minProperties", dict, at_least=True),
    "maxProperties": _on_size("maxProperties", dict, at_least=False),
    "pattern": _pattern,
    "uniqueItems": _unique_items,
    "items": _items,
    "prefixItems": _prefix_items,
    "contains": _contains,
    "required": _required,
    "dependentRequired": _dependent_required,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "propertyNames": _property_names,
    "dependentSchemas": _dependent_schemas,
    "allOf": _several("allOf", lambda nodes, instance, work: all(node.holds(instance, work) for node in nodes)),
    "anyOf": _several("anyOf", lambda nodes, instance, work: any(node.holds(instance, work) for node in nodes)),
    "oneOf": _several("oneOf", lambda nodes, instance, work: sum(node.holds(instance, work) for node in nodes) == 1),
    "not": _not,
    "if": _if,
}
"""`$ref` is the reader's affair."""
