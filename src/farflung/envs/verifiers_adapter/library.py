"""The library: whether it is here, which of its environments may be loaded, and loading one the same way everywhere.

A pool's rules name an environment, and they come from elsewhere. So a module is imported only if it belongs to an
installed distribution that requires `verifiers`: something that the operator installed as an environment of that
library. It then runs in this process, with all its rights, as any entry point does.

This module does not know tasks or episodes.
"""

import importlib
import inspect
import os
import random
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from farflung.envs.problems import uniform
from farflung.errors import UserError
from farflung.wire.pool import EnvArg

INSTALL = "pip install 'farflung[verifiers]'"
_IN_CLASSES_OF = {
    "SandboxEnv": "runs programs in a remote sandbox",
    "CliAgentEnv": "runs an agent in a remote sandbox",
    "MCPEnv": "asks tool servers",
    "BrowserEnv": "drives a browser",
    "OpenEnvEnv": "asks a server",
}
"""Base classes whose answers depend on something outside."""


@cache
def library() -> ModuleType:
    """`verifiers`, imported on first use: it takes seconds.

    Raises:
        UserError: it is missing, or a release without the classes that this adapter plays.
    """
    try:
        import verifiers
    except ImportError as error:
        if error.name != "verifiers":
            raise UserError(f"verifiers cannot be imported ({error}): {INSTALL}") from error
        raise UserError(f"verifiers is not installed; {INSTALL}") from error
    try:
        from verifiers import clients  # noqa: F401

        for name in ("SingleTurnEnv", "MultiTurnEnv", "EnvGroup", "JudgeRubric", "load_environment", "types"):
            getattr(verifiers, name)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"verifiers {version('verifiers')} lacks the classes that this adapter plays ({error}); {INSTALL}"
        ) from error
    _leave_signals_alone(importlib.import_module("verifiers.envs.environment"))
    found: ModuleType = verifiers
    return found


def load(name: str, seed: int, args: Mapping[str, EnvArg]) -> Any:
    """A `verifiers.Environment` with its data, made with seeded generators of `random` and numpy.

    Args:
        seed: also given to `load_environment` where it takes a `seed` and `args` has none.

    Raises:
        UserError: no such environment is installed, a wrong argument, or it fails to load.
    """
    vf = library()
    module = module_of(name)
    with seeded("farflung/verifiers-load/1", module, seed):
        accepted = _accepted_arguments(name, module)
        if accepted is not None and (unknown := sorted(set(args) - accepted)):
            raise UserError(f"verifiers:{name} has no argument {unknown[0]}; it has {', '.join(sorted(accepted))}")
        own_seed = {"seed": seed} if accepted is not None and "seed" in accepted else {}
        try:
            loaded = vf.load_environment(module, **own_seed | dict(args))
            loaded.build_dataset()  # which many draw, or fetch, on first use only
            loaded.build_eval_dataset()
        except Exception as error:
            raise UserError(f"verifiers:{name} cannot be loaded: {_cause(error)}") from error
    return loaded


def module_of(name: str) -> str:
    """The module that a name means, as the library does: `primeintellect/reverse-text` is `reverse_text`.

    Raises:
        UserError: no installed distribution that requires `verifiers` has such a module.
    """
    module = name.rpartition("/")[2].replace("-", "_")
    for owner in packages_distributions().get(module, ()):
        if _requires_verifiers(owner):
            return module
    raise UserError(
        f'no installed package that requires verifiers has a module "{module}": install the environment itself, '
        f"verifiers:{name} names its module"
    )


def outside_world(environment: Any) -> str:
    """Why the environment does not answer the same every time, in words; empty as far as can be seen."""
    vf = library()
    for member in getattr(environment, "env_map", {"": environment}).values():
        if any(_asks_a_judge(vf, rubric) for rubric in _rubrics(member.rubric)):
            return "its rubric asks a judge"
        for base in type(member).__mro__:
            if base.__name__ in _IN_CLASSES_OF:
                return f"it {_IN_CLASSES_OF[base.__name__]}"
    return ""


@contextmanager
def seeded(*fields: str | int) -> Iterator[None]:
    """Global generators of `random` and numpy, seeded inside and as they were after: the library's environments use
    them freely, and every replay must see the same."""
    with _turn:
        kept, kept_numpy = random.getstate(), np.random.get_state()
        number = uniform(2**32, *map(str, fields))
        random.seed(number)
        np.random.seed(number)
        try:
            yield
        finally:
            random.setstate(kept)
            np.random.set_state(kept_numpy)


def _new_turn() -> None:
    """A forked process has none of the threads that may have held the old one."""
    global _turn
    _turn = threading.RLock()


_turn = threading.RLock()
"""Held by whoever has the global generators seeded."""
os.register_at_fork(after_in_child=_new_turn)


def _leave_signals_alone(module: ModuleType) -> None:
    """The library takes over SIGINT and SIGTERM with every environment, which fails outside the main thread, and whose
    handlers belong to whoever runs it. So its module gets a `signal` that does nothing."""
    module.__dict__["signal"] = SimpleNamespace(
        signal=lambda *_: None,
        SIGINT=signal.SIGINT,
        SIGTERM=signal.SIGTERM,
        default_int_handler=signal.default_int_handler,
    )


def _requires_verifiers(owner: str) -> bool:
    try:
        requirements = distribution(owner).requires or []
    except PackageNotFoundError:
        return False
    return any(re.match(r"verifiers(?![\w.-])", each.strip(), re.IGNORECASE) for each in requirements)


def _accepted_arguments(name: str, module: str) -> set[str] | None:
    """Of its `load_environment`; None = any."""
    try:
        load_function = getattr(importlib.import_module(module), "load_environment", None)
    except Exception as error:
        raise UserError(f"verifiers:{name}: module {module} cannot be imported: {_cause(error)}") from error
    if load_function is None:
        raise UserError(f"verifiers:{name}: module {module} has no function load_environment")
    parameters = inspect.signature(load_function).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return {each.name for each in parameters}


def _rubrics(rubric: Any) -> Iterator[Any]:
    yield rubric
    for member in getattr(rubric, "rubrics", ()):
        yield from _rubrics(member)


def _asks_a_judge(vf: ModuleType, rubric: Any) -> bool:
    if isinstance(rubric, vf.JudgeRubric) or "judge" in getattr(rubric, "class_objects", {}):
        return True
    return any("judge" in inspect.signature(each).parameters for each in getattr(rubric, "funcs", ()))


def _cause(error: BaseException) -> str:
    """The first error of a chain, which says most."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"[:500]
