"""The part of pytest that test files of data sets use: `raises`, `approx`, `mark`, `fixture`, `fail`, `skip`.

Anything else is `Unsupported`: the tests cannot be run here, which is nobody's wrong answer.
"""

from __future__ import annotations

import types

from farflung.sandbox.code.inside.parameters import needed_by
from farflung.sandbox.code.inside.remote import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Self


class Skipped(Exception):
    """A test that does not want to run does not count as run."""


class Raises:
    """`with pytest.raises(ValueError, match="...") as caught:`."""

    def __init__(self, kinds: Any, match: str | None = None) -> None:
        self._kinds, self._match = kinds, match
        self.value: BaseException | None = None
        self.type: type[BaseException] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if kind is None or error is None:
            raise AssertionError(f"nothing was raised; {self._kinds} was wanted")
        if not issubclass(kind, self._kinds):
            return False
        self.value, self.type = error, kind
        if self._match is None:
            return True
        import re

        if not re.search(self._match, str(error)):
            raise AssertionError(f"{str(error)[:200]!r} does not match {self._match!r}")
        return True


def raises(kinds: Any, *call: Any, match: str | None = None, **kwargs: Any) -> Raises:
    """As a context, or with something to call."""
    context = Raises(kinds, match)
    if call:
        with context:
            call[0](*call[1:], **kwargs)
    return context


class Approx:
    """Equal up to 1e-6 of the wanted value, or 1e-12."""

    def __init__(self, wanted: Any, rel: float | None = None, abs: float | None = None) -> None:  # noqa: A002 - its name
        self._wanted, self._relative, self._absolute = wanted, rel, abs

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, given: object) -> bool:
        return self._equals(self._wanted, given)

    def _equals(self, wanted: Any, given: Any) -> bool:
        if isinstance(wanted, (list, tuple)):
            return type(given) is type(wanted) and len(given) == len(wanted) and all(map(self._equals, wanted, given))
        if isinstance(wanted, dict):
            return (
                isinstance(given, dict)
                and given.keys() == wanted.keys()
                and all(self._equals(wanted[key], given[key]) for key in wanted)
            )
        if type(given) not in (int, float, bool, complex):
            return bool(wanted is None and given is None)
        if wanted == given:
            return True
        return bool(abs(wanted - given) <= self._tolerance(wanted))

    def _tolerance(self, wanted: Any) -> float:
        absolute = 1e-12 if self._absolute is None else self._absolute
        if self._relative is None and self._absolute is not None:
            return absolute
        return float(max(absolute, (1e-6 if self._relative is None else self._relative) * abs(wanted)))


class Mark:
    """`parametrize` multiplies a test; every other mark changes nothing here."""

    def parametrize(self, names: str | Sequence[str], values: Sequence[Any], **_: Any) -> Callable[[Any], Any]:
        """Rows in the order of the decorators, the one nearest to the function varies first."""
        wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

        def decorate(function: Any) -> Any:
            rows = [dict(zip(wanted, _row(value, len(wanted)), strict=True)) for value in values]
            function.farflung_rows = [
                {**old, **row} for row in rows for old in getattr(function, "farflung_rows", [{}])
            ]
            return function

        return decorate

    def __getattr__(self, name: str) -> Any:
        if name in ("skip", "skipif", "xfail", "usefixtures", "asyncio"):
            raise Unsupported(f"pytest.mark.{name}")
        return lambda *call, **_: call[0] if call and callable(call[0]) else (lambda function: function)


def _row(value: Any, width: int) -> Sequence[Any]:
    return value if width > 1 else (value,)


def fixture(function: Any = None, **_: Any) -> Any:
    """Made anew for each test."""
    if function is None:
        return fixture
    function.farflung_fixture = True
    return function


def fixture_value(function: Any, resolve: Callable[[str], Any]) -> Any:
    """What a fixture hands out; what follows its `yield` is not run, since everything here is thrown away."""
    made = function(**{name: resolve(name) for name in needed_by(function)})
    return next(made) if isinstance(made, types.GeneratorType) else made


def _fail(reason: str = "", **_: Any) -> None:
    raise AssertionError(reason)


def _skip(reason: str = "", **_: Any) -> None:
    raise Skipped(reason)


def _param(*values: Any, **_: Any) -> Any:
    return values if len(values) != 1 else values[0]


def make_module() -> types.ModuleType:
    """To be put where `import pytest` looks."""
    module = types.ModuleType("pytest")
    module.__dict__.update(
        raises=raises, approx=Approx, mark=Mark(), fixture=fixture, fail=_fail, skip=_skip, param=_param
    )

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Unsupported(f"pytest.{name}")

    module.__getattr__ = missing  # type: ignore[method-assign]
    return module
