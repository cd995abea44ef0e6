"""A program that answers calls: loaded once, then asked, one question at a time.

    <- {"loaded": {name: export}} or {"raised": [...]}
    -> {"call": [target, args, kwargs]} ...   <- {"value": tree, "changed": [[index, tree], ...]} or {"raised": [...]}

Targets are a name of the program ("solve", "Solution.two_sum"), or `{"op": name}` for an operator on objects that
earlier answers handed out; a test's function is always a name, so that no operator answers in the program's place.
Answers are data: nobody outside believes more of them than that the program gave them.
"""

from __future__ import annotations

import operator

from farflung.sandbox.code.inside.codec import NotPlain, from_tree, to_tree
from farflung.sandbox.code.inside.frames import frame, read_frame, write_all
from farflung.sandbox.code.inside.json_text import dumps, loads
from farflung.sandbox.code.inside.script import execute, open_standard_streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from farflung.sandbox.code.inside.codec import Tree

MODULE = "solution"
_MAX_TEXT = 2000
_MUTABLE = (list, dict, set, bytearray)


class Answers:
    """The program's objects, by name and by reference."""

    def __init__(self, rpc: int, max_bytes: int) -> None:
        self._rpc, self._max_bytes = rpc, max_bytes
        self._names: dict[str, Any] = {}
        self._objects: list[object] = []

    def serve(self, job: dict[str, Any]) -> None:
        """Load the program, then answer until the other end is gone."""
        open_standard_streams()
        try:
            self._names = execute(job["program"], MODULE).__dict__
        except BaseException as error:  # noqa: BLE001 - told
            self._say({"raised": describe(error)})
            return
        exports = {name: self._export(value) for name, value in self._names.items() if not name.startswith("__")}
        self._say({"loaded": exports})
        while True:
            self._say(self._answer(loads(read_frame(self._rpc, self._max_bytes))))

    def _answer(self, question: dict[str, Any]) -> dict[str, Tree]:
        try:
            target, args, kwargs = question["call"]
            arguments = [self._value(tree) for tree in args]
            named = {name: self._value(tree) for name, tree in kwargs.items()}
            value = self._tree(self._find(target)(*arguments, **named))
            changed = [
                [index, after]
                for index, (before, argument) in enumerate(zip(args, arguments, strict=True))
                if isinstance(argument, _MUTABLE) and (after := self._tree(argument)) != before
            ]
        except BaseException as error:  # noqa: BLE001 - the program's exception is its answer
            return {"raised": describe(error)}
        return {"value": value, "changed": changed}

    def _find(self, target: Any) -> Any:
        """What to call: a dotted name of the program, or an operator."""
        if isinstance(target, dict):
            return OPERATIONS[target["op"]]
        first, *rest = target.split(".")
        found = self._names[first] if first in self._names else _missing(first)
        for name in rest:
            found = getattr(found() if isinstance(found, type) else found, name)
        return found

    def _export(self, value: object) -> dict[str, Any]:
        """How the other end should offer it: an exception class, something to call, or plain data."""
        if isinstance(value, type) and issubclass(value, BaseException):
            return {"exception": lineage(value)}
        if callable(value):
            return {"callable": self._reference(value)}
        try:
            return {"value": to_tree(value)}
        except NotPlain:
            return {"object": self._reference(value)}

    def _reference(self, value: object) -> int:
        self._objects.append(value)
        return len(self._objects) - 1

    def _tree(self, value: object) -> Tree:
        return to_tree(value, self._reference)

    def _value(self, tree: Tree) -> object:
        return from_tree(tree, self._objects.__getitem__)

    def _say(self, message: dict[str, Any]) -> None:
        write_all(self._rpc, frame(dumps(message)))


def _missing(name: str) -> Any:
    raise NameError(f"the program defines no {name!r}")


def lineage(kind: type) -> list[str]:
    """Names of an exception class and its bases, nearest first."""
    return [base.__name__ for base in kind.__mro__ if base is not object]


def describe(error: BaseException) -> list[Any]:
    """[lineage, text] of an exception."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - the program's own __str__
        text = ""
    return [lineage(type(error)), text[:_MAX_TEXT]]


def _call(value: Any, *args: Any, **kwargs: Any) -> Any:
    return value(*args, **kwargs)


def _get(value: Any, name: str) -> Any:
    return getattr(value, name)


def _set(value: Any, name: str, new: Any) -> None:
    setattr(value, name, new)


COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
OPERATIONS: dict[str, Any] = {
    "()": _call,
    ".": _get,
    ".=": _set,
    "len": len,
    "str": str,
    "repr": repr,
    "bool": bool,
    "int": int,
    "float": float,
    "abs": abs,
    "hash": hash,
    "iter": iter,
    "next": next,
    "reversed": reversed,
    "isinstance": isinstance,
    **{
        name: getattr(operator, name)
        for name in (*COMPARISONS, *ARITHMETIC, "neg", "getitem", "setitem", "delitem", "contains")
    },
}
"""Operators that work on references."""
