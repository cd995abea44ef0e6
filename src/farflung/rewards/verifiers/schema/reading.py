"""From the JSON of a schema to its graph of checks. What cannot be used is refused here, whatever the document.

A `$ref` reaches what stands in the schema itself: "#", "#/$defs/x", "#anchor", or the same behind the schema's own
`$id`. Schemas that nothing refers to are not looked at.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from farflung.rewards.verifiers.json_text import NotJson, read_json
from farflung.rewards.verifiers.schema.keywords import BUILDERS
from farflung.rewards.verifiers.schema.nodes import Node, UnusableSchema, Work, longest_path

MAX_SCHEMA_CHARS = 1 << 15
MAX_IN_PLACE = 32
"""Schemas in a row that look at the same part of a document, by `$ref`, `allOf` and the like."""
NOT_SUPPORTED = frozenset({"unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"})


def read_schema(text: str) -> Node:
    """Raises `UnusableSchema` with the reason."""
    if len(text) > MAX_SCHEMA_CHARS:
        raise UnusableSchema(f"the schema has {len(text)} characters, at most {MAX_SCHEMA_CHARS}")
    try:
        schema = read_json(text)
    except NotJson as problem:
        raise UnusableSchema(str(problem)) from None
    if not isinstance(schema, dict):
        raise UnusableSchema("a schema is a JSON object")
    reader = _Reader(schema)
    root = reader.read(schema)
    reader.fill()
    if (depth := longest_path(reader.nodes())) > MAX_IN_PLACE:
        raise UnusableSchema(f"{depth} schemas in a row for one part of a document, at most {MAX_IN_PLACE}")
    return root


class _Reader:
    """Each schema becomes one node, made before it is filled, so that schemas may refer to each other."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._nodes: dict[int, Node] = {}
        self._waiting: list[tuple[Node, dict[str, Any]]] = []
        self._never = Node()
        self._never.checks.append(("false", _never))
        self._always = Node()

    def nodes(self) -> list[Node]:
        return [*self._nodes.values(), self._never, self._always]

    def read(self, schema: Any) -> Node:
        if isinstance(schema, bool):
            return self._always if schema else self._never
        if not isinstance(schema, dict):
            raise UnusableSchema("a schema is an object, true or false")
        if id(schema) not in self._nodes:
            self._nodes[id(schema)] = Node()
            self._waiting.append((self._nodes[id(schema)], schema))
        return self._nodes[id(schema)]

    def fill(self) -> None:
        while self._waiting:
            self._fill(*self._waiting.pop())

    def _fill(self, node: Node, schema: dict[str, Any]) -> None:
        if unsupported := NOT_SUPPORTED & schema.keys():
            raise UnusableSchema(f"keyword {min(unsupported)} is not supported")
        if "$id" in schema and schema is not self._root:
            raise UnusableSchema("a $id within a schema is not supported")

        def read(schema: Any, *, in_place: bool = False) -> Node:
            found = self.read(schema)
            if in_place:
                node.in_place.append(found)
            return found

        if "$ref" in schema:
            target = read(self._target(schema["$ref"]), in_place=True)
            node.checks.append(("$ref", target.holds))
        for keyword, value in schema.items():
            if keyword in BUILDERS:
                node.checks.append((keyword, BUILDERS[keyword](value, schema, read)))

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str):
            raise UnusableSchema("a value of $ref is no text")
        before, _, fragment = reference.partition("#")
        if before and before != str(self._root.get("$id", "")).rstrip("#"):
            raise UnusableSchema(f"the reference {reference[:80]!r} leads outside")
        fragment = unquote(fragment)
        found = _at(self._root, fragment) if fragment[:1] in ("", "/") else self._anchored(fragment)
        if found is None:
            raise UnusableSchema(f"the reference {reference[:80]!r} leads nowhere")
        return found

    def _anchored(self, name: str) -> Any:
        return next((part for part in _parts(self._root) if part.get("$anchor") == name), None)


def _at(value: Any, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) leads to; None if nothing."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isascii() and name.isdigit() and int(name[:9]) < len(value):
            value = value[int(name[:9])]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return None
    return value


def _parts(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parts(each)


def _never(_instance: Any, _work: Work) -> bool:
    return False
