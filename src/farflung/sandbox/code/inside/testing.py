"""Running a test file in a sandbox of its own, against a program that lives in another one.

    <- {"collected": [name, ...]} | {"cannot_run": text} | {"failed_to_load": text}
    <- {"call": ...}   -> the program's answer, or {"gone": true}
    <- {"result": [index, "passed" | "failed" | "not_run", text]} ...    <- {"done": number}

Counts are made here, out of the program's reach.
"""

from __future__ import annotations

import os
import sys
import types

from farflung.sandbox.code.inside.collecting import collect
from farflung.sandbox.code.inside.frames import frame, read_frame, write_all
from farflung.sandbox.code.inside.json_text import dumps, loads
from farflung.sandbox.code.inside.offers import offered
from farflung.sandbox.code.inside.pytest_shim import Skipped, make_module
from farflung.sandbox.code.inside.remote import Connection, ProgramGone, Unsupported, made_by_program
from farflung.sandbox.code.inside.script import open_standard_streams
from farflung.sandbox.code.inside.supervisor import OVERHEAD_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from farflung.sandbox.code.inside.collecting import Case
    from farflung.sandbox.isolation.limits import Limits

MODULE = "solution"
_MAX_NAME = 200
_MAX_TEXT = 500


class TestRun:
    """One test file against one program."""

    __test__ = False

    def __init__(self, rpc: int, limits: Limits) -> None:
        self._rpc, self._max_bytes = rpc, limits.message_bytes + OVERHEAD_BYTES

    def run(self, job: dict[str, Any]) -> None:
        """Collect, count, run, tell."""
        try:
            solution = Connection(self._ask).solution(MODULE, job["exports"])
        except BaseException as error:  # noqa: BLE001 - what the program says of itself cannot be read
            self._say({"failed_to_load": _text(error)})
            return
        sys.modules[MODULE] = solution
        sys.modules["pytest"] = make_module()
        module = types.ModuleType("tests")
        names = vars(solution)
        free = {name: names[name] for name in offered(names, job["entry"], job["source"], MODULE)}
        module.__dict__.update(free)
        solution.__all__ = list(free)  # type: ignore[attr-defined]  # what `from solution import *` gives
        try:
            exec(compile(job["source"], "<tests>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - sandboxed
        except BaseException as error:  # noqa: BLE001 - told, with whose fault it is
            blame = "failed_to_load" if _is_programs_fault(error) else "cannot_run"
            self._say({blame: _text(error)})
            return
        own = {name: value for name, value in vars(module).items() if free.get(name) is not value}
        cases = collect(own, job["entry"], solution)  # what the program calls test_x is no test
        if hasattr(solution, job["entry"] or ""):
            setattr(module, job["entry"], getattr(solution, job["entry"]))  # the file may define a stub of that name
        self._run_all(cases or [("the whole file", _nothing)])

    def _run_all(self, cases: list[Case]) -> None:
        self._say({"collected": [name[:_MAX_NAME] for name, _ in cases]})
        for index, (_, case) in enumerate(cases):
            try:
                case()
                result = ["passed", ""]
            except Skipped as error:
                result = ["not_run", f"skipped: {_text(error)}"]
            except BaseException as error:  # noqa: BLE001 - a test's failure, whatever it raises
                if not made_by_program(error) and isinstance(error, (Unsupported, ModuleNotFoundError)):
                    self._say({"cannot_run": _text(error)})
                    return
                result = ["failed", _text(error)]
            self._say({"result": [index, *result]})
        self._say({"done": len(cases)})

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        self._say(question)
        answer: dict[str, Any] = loads(read_frame(self._rpc, self._max_bytes))
        if "gone" in answer:
            raise ProgramGone("the program ended")
        return answer

    def _say(self, message: dict[str, Any]) -> None:
        write_all(self._rpc, frame(dumps(message)))


def _nothing() -> None:
    """A file of asserts was run when it was loaded."""


def _is_programs_fault(error: BaseException) -> bool:
    """While the file loads: failed asserts, what the program raised, and names that it should have."""
    if made_by_program(error) or isinstance(error, (AssertionError, ProgramGone, NameError)):
        return True
    return isinstance(error, ImportError) and error.name == MODULE and not isinstance(error, ModuleNotFoundError)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_MAX_TEXT]


def run_tests(rpc: int, job: dict[str, Any], limits: Limits) -> NoReturn:
    """Never returns."""
    open_standard_streams()
    TestRun(rpc, limits).run(job)
    os._exit(0)
