"""Which arguments a test or a fixture asks for, by the names of its parameters."""

from __future__ import annotations

import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_VARIABLE = 0x04 | 0x08
"""`inspect.CO_VARARGS | inspect.CO_VARKEYWORDS`."""


def needed_by(function: Callable[..., Any]) -> list[str]:
    """Those without a default. Most tests have none, and `inspect` takes long to import."""
    if _takes_nothing(function):
        return []
    import inspect

    parameters = inspect.signature(function).parameters
    return [name for name, parameter in parameters.items() if parameter.default is inspect.Parameter.empty]


def _takes_nothing(function: Callable[..., Any]) -> bool:
    is_bound = isinstance(function, types.MethodType)
    plain = function.__func__ if isinstance(function, types.MethodType) else function
    if not isinstance(plain, types.FunctionType) or hasattr(plain, "__wrapped__"):
        return False
    code = plain.__code__
    return not code.co_flags & _VARIABLE and code.co_argcount + code.co_kwonlyargcount == is_bound
