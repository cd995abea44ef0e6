"""JSON by the C half of the standard library's module alone.

`import json` also loads `re` and `enum`, which takes as long as starting the interpreter, in every sandbox that talks.
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def dumps(value: object) -> bytes:
    """Without blanks, ASCII only. Raises `ValueError` for nan and infinities, `TypeError` for what has no form."""
    return "".join(_encode(value, 0)).encode()


def loads(data: bytes) -> Any:
    """One value and nothing around it. Raises `ValueError`, or `RecursionError` for nesting without end."""
    text = data.decode("utf-8", "surrogatepass")
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        raise ValueError("no JSON") from None
    if end != len(text):
        raise ValueError(f"{len(text) - end} characters behind the end of the JSON value")
    return value


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


class _Settings:
    """What `make_scanner` reads."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, _refuse_constant


_encode = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, False)
_scan = make_scanner(_Settings)  # type: ignore[arg-type]  # it only reads attributes
