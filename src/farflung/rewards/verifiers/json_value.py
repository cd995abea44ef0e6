"""A JSON document that equals another: objects in any order of keys, lists in theirs.

    1.0       the same value; 1 and 1.0 are the same number, true and 1 are not. Numbers with a point or an exponent are
              doubles, integers are exact
    partial   only if asked for, for an object as reference: the share of its keys, and of those that the answer has
              beyond them, whose values are the same

The document is marked with <answer>, in a fenced block, or the whole reply (`json_text` has the limits).
"""

import json
from typing import Any

from farflung.rewards.decision import Decision
from farflung.rewards.verifiers.json_text import NotJson, read_json
from farflung.rewards.verifiers.spoken import answer_text


def grade_json_value(reference: str, completion: str, *, partial: bool = False) -> Decision:
    """1.0 for the value `reference`; None if that is no JSON."""
    try:
        expected = read_json(reference)
    except NotJson as problem:
        return Decision(None, "gold_unparseable", str(problem))
    text = answer_text(completion)
    if not text.strip():
        return Decision(0.0, "no_answer")
    try:
        found = read_json(text)
    except NotJson as problem:
        return Decision(0.0, "not_json", str(problem))
    if canonical_value(found) == canonical_value(expected):
        return Decision(1.0, "same_value")
    if not (partial and isinstance(expected, dict) and isinstance(found, dict)):
        return Decision(0.0, "other_value")
    keys = expected.keys() | found.keys()
    same = sum(
        key in expected and key in found and canonical_value(expected[key]) == canonical_value(found[key])
        for key in keys
    )
    return Decision(same / len(keys), "share_of_keys")


def canonical_value(value: Any) -> str:
    """One text for every way of writing the same JSON value."""
    return json.dumps(_exact(value), sort_keys=True, ensure_ascii=True)


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _exact(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_exact(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
