"""Plain values as JSON and back: what may cross the wall of a sandbox. No class, no code, no pickle.

    None, bool, str, list   as they are       tuple     {"t": [...]}      set        {"s": [...]}
    int below 2^53, float   as they are       dict      {"d": [[k, v]]}   frozenset  {"fs": [...]}
    greater int             {"i": hex}        bytes     {"b": hex}        complex    {"c": [re, im]}
    nan, inf                {"f": "nan"}      Fraction  {"q": [n, d]}     Decimal    {"n": text}

Subclasses of these travel as their base. Anything else is the caller's affair: `{"r": number}`, a reference.
"""

from __future__ import annotations

import math
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    Tree: TypeAlias = Any
    """What `json.loads` returns."""
else:
    Tree = object

MAX_DEPTH = 100
_EXACT_INT = 1 << 53
_FEW = 1000
"""Keys that may have any hashes."""


class NotPlain(TypeError):
    """A value that cannot cross."""


def _no_reference(value: object) -> int:
    raise NotPlain(f"a value of type {type(value).__name__} is no plain data")


def _no_lookup(_: int) -> object:
    raise NotPlain("a reference where plain data is wanted")


def to_tree(value: object, reference: Callable[[object], int] = _no_reference, depth: int = 0) -> Tree:
    """Encode. Raises `NotPlain`, also for nesting beyond `MAX_DEPTH`."""
    if depth > MAX_DEPTH:
        raise NotPlain(f"nested deeper than {MAX_DEPTH}")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        number = int.__index__(value)
        return number if -_EXACT_INT < number < _EXACT_INT else {"i": hex(number)}
    if isinstance(value, float):
        real = float.__float__(value)
        return real if math.isfinite(real) else {"f": repr(real)}

    def items(parts: Any) -> list[Tree]:
        return [to_tree(part, reference, depth + 1) for part in parts]

    if isinstance(value, list):
        return items(value)
    if isinstance(value, tuple):
        return {"t": items(value)}
    if isinstance(value, dict):
        return {"d": [items(pair) for pair in dict.items(value)]}
    if isinstance(value, (set, frozenset)):
        return {"s" if isinstance(value, set) else "fs": items(value)}
    return _rare(value, reference)


def _rare(value: Any, reference: Callable[[object], int]) -> Tree:
    if isinstance(value, (bytes, bytearray)):
        return {"b": bytes(value).hex()}
    if isinstance(value, complex):
        return {"c": [to_tree(value.real), to_tree(value.imag)]}
    if _is_a("fractions", "Fraction", value):
        return {"q": [hex(value.numerator), hex(value.denominator)]}
    if _is_a("decimal", "Decimal", value):
        return {"n": str(value)}
    return {"r": reference(value)}


def _is_a(module: str, name: str, value: object) -> bool:
    """Whether a value is of a class whose module nobody may have imported yet; then it is not."""
    return module in sys.modules and isinstance(value, getattr(sys.modules[module], name))


def from_tree(tree: Tree, lookup: Callable[[int], object] = _no_lookup, depth: int = 0) -> Any:
    """Decode. Raises `NotPlain`, `ValueError`, `TypeError` for what `to_tree` never makes."""
    if depth > MAX_DEPTH:
        raise NotPlain(f"nested deeper than {MAX_DEPTH}")
    if isinstance(tree, list):
        return [from_tree(part, lookup, depth + 1) for part in tree]
    if not isinstance(tree, dict):
        return tree
    ((tag, body),) = tree.items()

    def items() -> list[Any]:
        return [from_tree(part, lookup, depth + 1) for part in body]

    match tag:
        case "t":
            return tuple(items())
        case "d":
            pairs = [(key, value) for key, value in items()]
            _check_hashes([key for key, _ in pairs])
            return dict(pairs)
        case "s":
            return set(_check_hashes(items()))
        case "fs":
            return frozenset(_check_hashes(items()))
        case "i":
            return int(body, 16)
        case "f":
            return float(body)
        case "b":
            return bytes.fromhex(body)
        case "c":
            return complex(*items())
        case "q":
            from fractions import Fraction

            return Fraction(int(body[0], 16), int(body[1], 16))
        case "n":
            from decimal import Decimal

            return Decimal(body)
        case "r":
            return lookup(int(body))
        case _:
            raise NotPlain(f"unknown tag {tag!r}")


def _check_hashes(items: list[Any]) -> list[Any]:
    """Refuses keys that were chosen to have equal hashes, with which a set takes the square of their number."""
    if len(items) > _FEW and 2 * len(set(map(hash, items))) < len(items):
        raise NotPlain(f"{len(items)} keys, most of them with the same hash")
    return items
