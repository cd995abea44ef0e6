"""JSON Schema adherence: a document that keeps to a schema, such as the one that a pydantic model writes of itself.

    reference   the schema (draft 2020-12) as JSON text
    1.0         the document is valid

A schema that cannot be used is "cannot be graded", whatever the answer: one that refers to itself without end or to
something outside, and what `schema.reading` and `schema.patterns` refuse. A document has a budget of steps that grows
with it and its schema (a recursive `anyOf` can take exponentially many); one that uses it up is 0, within a second.
"""

from functools import lru_cache
from typing import Any

from farflung.rewards.decision import Decision
from farflung.rewards.verifiers.json_text import NotJson, read_json
from farflung.rewards.verifiers.schema.nodes import Node, OverBudget, UnusableSchema, Work
from farflung.rewards.verifiers.schema.reading import read_schema
from farflung.rewards.verifiers.spoken import answer_text

MIN_STEPS = 10_000
STEPS_PER_CHAR = 16
"""Steps for each character of document and schema; an ordinary document takes one to three."""
MAX_STEPS = 1_000_000
"""Under a second."""
NUM_CACHED = 256


def grade_json_schema(reference: str, completion: str) -> Decision:
    """1.0 for a document that is valid under the schema `reference`; None if that is no usable schema."""
    schema = _read_schema(reference)
    if isinstance(schema, str):
        return Decision(None, "gold_unparseable", schema)
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
    schema = _read_schema(reference)
    if isinstance(schema, str):
        return Decision(None, "gold_unparseable", schema)
    work = Work(min(MAX_STEPS, MIN_STEPS + STEPS_PER_CHAR * (num_chars + len(reference))))
    try:
        keyword = schema.broken(document, work)
    except OverBudget:
        return Decision(0.0, "too_many_steps")
    except RecursionError:
        return Decision(0.0, "nested_too_deeply")
    return Decision(1.0, "valid") if keyword is None else Decision(0.0, "invalid", f"keyword {keyword}")


@lru_cache(NUM_CACHED)
def _read_schema(reference: str) -> Node | str:
    """A text says why it cannot be used."""
    try:
        return read_schema(reference)
    except UnusableSchema as problem:
        return str(problem)[:200]
