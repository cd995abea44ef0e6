"""Which tests a test file holds: functions, classes, `TestCase`s, `check(candidate)`, or the file itself."""

from __future__ import annotations

import sys
import types

from farflung.sandbox.code.inside.parameters import needed_by
from farflung.sandbox.code.inside.pytest_shim import Skipped, fixture_value
from farflung.sandbox.code.inside.remote import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    import unittest
    from collections.abc import Callable, Iterator
    from typing import Any, TypeAlias

    Case: TypeAlias = tuple[str, Callable[[], None]]

_COROUTINE = 0x80
"""`inspect.CO_COROUTINE`."""


def collect(names: dict[str, Any], entry: str | None, solution: types.ModuleType) -> list[Case]:
    """In the order of the file."""
    found: list[Case] = []
    for name, value in names.items():
        if _is_unit_tests(value):
            found += _unit_tests(value)
        elif isinstance(value, type) and name.startswith("Test"):
            found += [
                case
                for method in vars(value)
                if method.startswith("test")
                for case in _cases(f"{name}::{method}", _bound(value, method), getattr(value, method), names)
            ]
        elif name.startswith("test") and isinstance(value, types.FunctionType):
            found += _cases(name, _always(value), value, names)
    check = names.get("check")
    if entry is not None and isinstance(check, types.FunctionType):
        found.append((f"check({entry})", lambda: check(getattr(solution, entry))))
    return found


def _is_unit_tests(value: object) -> bool:
    """A file that has such a class has imported its base."""
    loaded: Any = sys.modules.get("unittest")
    return loaded is not None and isinstance(value, type) and issubclass(value, loaded.TestCase)


def _always(function: Callable[..., None]) -> Callable[[], Callable[..., None]]:
    return lambda: function


def _bound(kind: type, method: str) -> Callable[[], Callable[..., None]]:
    """A method of a fresh object, after the setup that its class asks for."""

    def make() -> Callable[..., None]:
        instance = kind()
        for name in ("setup_method", "setup"):
            if hasattr(instance, name):
                getattr(instance, name)()
                break
        function: Callable[..., None] = getattr(instance, method)
        return function

    return make


def _cases(name: str, make: Callable[[], Callable[..., None]], raw: Any, names: dict[str, Any]) -> Iterator[Case]:
    rows = getattr(raw, "farflung_rows", None)
    for index, row in enumerate(rows or [{}]):
        yield (f"{name}[{index}]" if rows else name), _runner(make, row, names)


def _runner(make: Callable[[], Callable[..., None]], row: dict[str, Any], names: dict[str, Any]) -> Callable[[], None]:
    def run() -> None:
        function = make()
        if _is_coroutine(function):
            raise Unsupported("asynchronous tests")

        def resolve(name: str) -> Any:
            if name in row:
                return row[name]
            maker = names.get(name)
            if not getattr(maker, "farflung_fixture", False):
                raise Unsupported(f"the fixture {name}")
            return fixture_value(maker, resolve)

        function(**{name: resolve(name) for name in needed_by(function)})

    return run


def _is_coroutine(function: Callable[..., None]) -> bool:
    code: types.CodeType | None = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & _COROUTINE)


def _unit_tests(kind: type[unittest.TestCase]) -> Iterator[Case]:
    import unittest

    for method in unittest.TestLoader().getTestCaseNames(kind):
        yield f"{kind.__name__}::{method}", _unit_runner(kind, method)


def _unit_runner(kind: type[unittest.TestCase], method: str) -> Callable[[], None]:
    import unittest

    def run() -> None:
        try:
            kind.setUpClass()
            kind(method).debug()  # lets exceptions through
            kind.tearDownClass()
        except unittest.SkipTest as skip:
            raise Skipped(str(skip)) from skip

    return run
