"""The program as the tests see it: names, functions, objects and exceptions that live in another sandbox.

What comes back is plain data, or a `Remote` for everything else. A Remote never equals, and is never less or greater
than, a value that the tests made, and does not reckon with one: an answer whose `__eq__` is always true, or whose
difference to anything is 0, wins nothing. Two Remotes are compared and reckoned with by the program. Lists, dicts and
sets that the program changed in place are changed here too.
"""

from __future__ import annotations

import builtins
import types

from farflung.sandbox.code.inside.answers import ARITHMETIC, COMPARISONS
from farflung.sandbox.code.inside.codec import from_tree, to_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeAlias, TypeVar

    from farflung.sandbox.code.inside.codec import Tree

    T = TypeVar("T")
    Ask: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
    """Question in, answer out. Raises `ProgramGone`."""


class Unsupported(BaseException):
    """The tests ask for something that cannot be done from outside the program; nobody's answer is wrong for that."""


class ProgramGone(BaseException):
    """The program ended in the middle of a call."""


def made_by_program(error: BaseException) -> bool:
    """Whether an exception came over the wall."""
    return getattr(error, "from_program", False) is True


class Connection:
    """Calls over the wall."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._exceptions: dict[str, type[BaseException]] = {}

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """What the program returns. Raises what it raises, and `Unsupported`."""
        trees = [self._tree(value) for value in args]
        named = {name: self._tree(value) for name, value in kwargs.items()}
        answer = self._ask({"call": [target, trees, named]})
        if "raised" in answer:
            raise self._exception(*answer["raised"])
        for index, tree in answer["changed"]:
            restore(args[index], self._value(tree))
        return self._value(answer["value"])

    def solution(self, name: str, exports: dict[str, dict[str, Any]]) -> types.ModuleType:
        """The program as a module."""
        module = types.ModuleType(name)
        for export, what in exports.items():
            setattr(module, export, self._offer(what))
        return module

    def _offer(self, what: dict[str, Any]) -> Any:
        ((kind, body),) = what.items()
        if kind == "exception":
            return self._exception_class(body)
        return self._value(body) if kind == "value" else Remote(self, body)

    def _tree(self, value: Any) -> Tree:
        return to_tree(value, _reference)

    def _value(self, tree: Tree) -> Any:
        return from_tree(tree, lambda reference: Remote(self, reference))

    def _exception(self, lineage: list[str], text: str) -> BaseException:
        kind = self._exception_class(lineage)
        error = kind.__new__(kind, text)
        error.args = (text,)
        error.from_program = True  # type: ignore[attr-defined]
        return error

    def _exception_class(self, lineage: list[str]) -> type[BaseException]:
        """A builtin one, or one of our own with the same name and the same bases."""
        name, *bases = lineage
        known = getattr(builtins, name, None)
        if isinstance(known, type) and issubclass(known, BaseException):
            return known
        if name not in self._exceptions:
            base = self._exception_class(bases) if bases else Exception
            self._exceptions[name] = type(name, (base,), {})
        return self._exceptions[name]


def _reference(value: object) -> int:
    if isinstance(value, Remote):
        return int(object.__getattribute__(value, "_reference"))
    raise Unsupported(f"the tests hand a {type(value).__name__} to the program; only plain data can be handed over")


def restore(before: Any, after: Any) -> None:
    """Make a mutable argument what the program made of its copy."""
    if isinstance(before, (list, bytearray)):
        before[:] = after
    elif isinstance(before, (dict, set)):
        before.clear()
        before.update(after)


class Remote:
    """An object of the program."""

    def __init__(self, connection: Connection, reference: int) -> None:
        object.__setattr__(self, "_connection", connection)
        object.__setattr__(self, "_reference", reference)

    def __getattr__(self, name: str) -> Any:
        return _call(self, ".", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _call(self, ".=", self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _call(self, "()", self, *args, **kwargs)

    def __bool__(self) -> bool:
        return _call(self, "bool", self) is True

    def __contains__(self, value: Any) -> bool:
        """By what it holds: its own word would be that it holds everything."""
        if isinstance(value, Remote):
            return _call(self, "contains", self, value) is True
        return any(item == value for item in self)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Remote) and _call(self, "isinstance", value, self) is True

    def __iter__(self) -> Iterator[Any]:
        iterator = _call(self, "iter", self)
        while True:
            try:
                yield _call(self, "next", iterator)
            except StopIteration:
                return

    def __next__(self) -> Any:
        return _call(self, "next", self)

    def __hash__(self) -> int:
        return _plain(self, "hash", int)

    def __len__(self) -> int:
        return _plain(self, "len", int)

    def __int__(self) -> int:
        return _plain(self, "int", int)

    def __float__(self) -> float:
        return _plain(self, "float", float)

    def __str__(self) -> str:
        return _plain(self, "str", str)

    def __repr__(self) -> str:
        return _plain(self, "repr", str)

    def __enter__(self) -> Any:
        return self.__getattr__("__enter__")()

    def __exit__(self, *error: object) -> bool:
        return self.__getattr__("__exit__")(None, None, None) is True


def _call(remote: Remote, target: str, *args: Any, **kwargs: Any) -> Any:
    connection: Connection = object.__getattribute__(remote, "_connection")
    return connection.call({"op": target}, *args, **kwargs)


def _plain(remote: Remote, target: str, kind: type[T]) -> T:
    value: T = _call(remote, target, remote)
    if type(value) is not kind:
        raise TypeError(f"{target} of an object of the program is no {kind.__name__}")
    return value


def _comparison(name: str) -> Callable[[Remote, object], Any]:
    def compare(self: Remote, other: object) -> Any:
        return _call(self, name, self, other) is True if isinstance(other, Remote) else NotImplemented

    return compare


def _operator(name: str) -> Callable[..., Any]:
    def operate(self: Remote, *others: object) -> Any:
        return _call(self, name, self, *others)

    return operate


def _reckoning(name: str) -> Callable[[Remote, object], Any]:
    def operate(self: Remote, other: object) -> Any:
        return _call(self, name, self, other) if isinstance(other, Remote) else NotImplemented

    return operate


for _name in COMPARISONS:
    setattr(Remote, f"__{_name}__", _comparison(_name))
for _name in ARITHMETIC:
    setattr(Remote, f"__{_name}__", _reckoning(_name))
for _name in ("neg", "abs", "getitem", "setitem", "delitem", "reversed"):
    setattr(Remote, f"__{_name}__", _operator(_name))
