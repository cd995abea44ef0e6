"""Is what a program gave what was expected? Pure; the given side is hostile.

Values are compared as trees of `inside.codec`, never as objects of Python: no `__eq__` of the program is there to be
patched, and no set or dict is built from keys that the program chose (equal hashes would make that quadratic).
Numbers are equal as in Python: 1, 1.0 and True. Text never equals a number.
"""

import json
import math
from typing import Any

from farflung.sandbox.code.inside.codec import MAX_DEPTH, Tree

_UNORDERED = ("s", "fs")


def same_value(expected: Tree, given: Tree, *, tuples_are_lists: bool, tolerance: float) -> bool:
    """Whether two trees mean equal values; False for anything malformed."""
    try:
        return _same(expected, given, tuples_are_lists, tolerance)
    except (RecursionError, ValueError, TypeError, OverflowError):
        return False


def same_text(expected: str, given: str, *, compare: str, tolerance: float) -> bool:
    """Whether an output counts as the expected one; see `tests.ScriptTests` for `compare`."""
    if compare == "exact":
        return expected == given
    if compare == "lines":
        return _lines(expected) == _lines(given)
    wanted, words = expected.split(), given.split()
    return len(wanted) == len(words) and all(map(lambda a, b: _same_word(a, b, tolerance), wanted, words))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _same_word(expected: str, given: str, tolerance: float) -> bool:
    if expected == given or tolerance == 0.0:
        return expected == given
    try:
        return _close(float(expected), float(given), tolerance)
    except ValueError:
        return False


def _close(expected: float, given: float, tolerance: float) -> bool:
    if math.isnan(expected):
        return math.isnan(given)
    if expected == given or tolerance == 0.0:
        return expected == given  # exact, also for a large int and a float
    if not (math.isfinite(expected) and math.isfinite(given)):
        return False
    return abs(expected - given) <= tolerance * max(1.0, abs(expected))


def _same(expected: Tree, given: Tree, tuples: bool, tolerance: float) -> bool:
    one, other = _number(expected), _number(given)
    if one is not None or other is not None:
        if one is None or other is None:
            return False
        if isinstance(one, float) or isinstance(other, float):
            return _close(one, other, tolerance)
        return one == other
    tag, body = _parts(expected, tuples)
    given_tag, given_body = _parts(given, tuples)
    if tag == "fs":
        tag = "s"
    if given_tag == "fs":
        given_tag = "s"
    if tag != given_tag:
        return False
    if tag in ("l", "t", "c"):
        return len(body) == len(given_body) and all(
            _same(a, b, tuples, tolerance) for a, b in zip(body, given_body, strict=True)
        )
    if tag == "s":
        return len(body) == len(given_body) and _sorted(body, tuples) == _sorted(given_body, tuples)
    if tag == "d":
        return len(body) == len(given_body) and all(
            key == given_key and _same(value, given_value, tuples, tolerance)
            for (key, value), (given_key, given_value) in zip(
                _pairs(body, tuples), _pairs(given_body, tuples), strict=True
            )
        )
    return type(body) is type(given_body) and bool(body == given_body)


def _number(tree: Tree) -> int | float | None:
    """The real number that a tree is, if it is one."""
    if isinstance(tree, (bool, int, float)):
        return tree
    if isinstance(tree, dict) and len(tree) == 1:
        if "i" in tree:
            return int(tree["i"], 16)
        if "f" in tree:
            return float(tree["f"])
    return None


def _parts(tree: Tree, tuples: bool) -> tuple[str, Any]:
    """(tag, body); text and None have tags of their own."""
    if isinstance(tree, list):
        return ("t" if tuples else "l"), tree
    if isinstance(tree, dict):
        ((tag, body),) = tree.items()
        return str(tag), body
    return ("text" if isinstance(tree, str) else "none"), tree


def _sorted(trees: list[Tree], tuples: bool) -> list[str]:
    return sorted(_canonical(tree, tuples) for tree in trees)


def _pairs(pairs: list[Any], tuples: bool) -> list[tuple[str, Tree]]:
    return sorted(((_canonical(key, tuples), value) for key, value in pairs), key=lambda pair: pair[0])


def _canonical(tree: Tree, tuples: bool, depth: int = 0) -> str:
    """One text for all trees that mean equal values; only for what can be in a set."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    number = _number(tree)
    if number is not None:
        whole = isinstance(number, int) or (math.isfinite(number) and number == int(number))
        return hex(int(number)) if whole else repr(number)
    tag, body = _parts(tree, tuples)
    if tag in ("l", "t", "c"):
        return f"{tag}[{','.join(_canonical(part, tuples, depth + 1) for part in body)}]"
    if tag in _UNORDERED:
        return f"s[{','.join(sorted(_canonical(part, tuples, depth + 1) for part in body))}]"
    return f"{tag}:{json.dumps(body)}"
