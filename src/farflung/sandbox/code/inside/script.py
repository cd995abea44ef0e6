"""Running a whole program: standard input in, standard output out, and an end like that of any Python program."""

from __future__ import annotations

import atexit
import os
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

NAME = "<solution>"


def run_script(job: dict[str, Any]) -> NoReturn:
    """`program` reads `stdin`; the process ends with the code that `python program.py` would have."""
    _feed(job["stdin"].encode("utf-8", "surrogatepass"))
    open_standard_streams()
    code = 0
    try:
        execute(job["program"], "__main__")
    except SystemExit as leave:
        code = exit_code(leave)
    except BaseException:  # noqa: BLE001 - whatever a program raises ends it, and is told on its standard error
        sys.__excepthook__(*sys.exc_info())
        code = 1
    finish(code)


def _feed(data: bytes) -> None:
    """Standard input, from a file without a name: whole, however slowly it is read."""
    path = f".stdin-{os.getpid()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    with open(descriptor, "r+b", closefd=True) as file:
        file.write(data)
        file.seek(0)
        os.dup2(descriptor, 0)


def execute(source: str, name: str) -> types.ModuleType:
    """Run source as the module `name`. Raises whatever it raises."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, NAME, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - this is the sandbox
    return module


def open_standard_streams() -> None:
    """Fresh text streams over descriptors 0 to 2."""
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115 - for the program
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def exit_code(leave: SystemExit) -> int:
    """As the interpreter does it."""
    if leave.code is None:
        return 0
    if isinstance(leave.code, int):
        return leave.code & 0xFF
    sys.stderr.write(f"{leave.code}\n")
    return 1


def finish(code: int) -> NoReturn:
    """The end of an interpreter: threads, exit functions, streams."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()  # noqa: SLF001 - what Py_Finalize calls
        atexit._run_exitfuncs()  # noqa: SLF001
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - a full or closed pipe, or a thread that raised
        code = code or 120
    os._exit(code)
