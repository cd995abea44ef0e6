"""A Python interpreter as a tool: a whole program in a sandbox, told what it printed.

Each call runs twice, in two fresh sandboxes, and what does not print the same both times is told so in place of its
output; so chance, clocks and addresses do not get into an episode unnoticed. Programs may still ask for what differs
from machine to machine, and a program near its time limit may pass on one and not on another, so the tool is not
`is_reproducible`: pools whose episodes others replay refuse it. This module does not know environments.
"""

from collections.abc import Mapping
from typing import Any

from farflung.envs.graders.code import shared_pool
from farflung.envs.tools import Tool, ToolRefusal
from farflung.sandbox.code.pool import CodePool
from farflung.sandbox.code.report import explain
from farflung.sandbox.code.sandbox import Cause, Ending
from farflung.sandbox.isolation.limits import Limits

MAX_PROGRAM_CHARS = 1 << 14
LIMITS = Limits(test_cpu_s=5.0, test_wall_s=15.0, total_wall_s=30.0, output_bytes=1 << 16)
_SCHEMA = {
    "type": "object",
    "properties": {"code": {"type": "string", "maxLength": MAX_PROGRAM_CHARS}},
    "required": ["code"],
    "additionalProperties": False,
}


def python_tool(pool: CodePool | None = None) -> Tool:
    """Called `python`, with the argument `code`.

    Args:
        pool: where programs run; None = the one of this process, made when it is first needed, which raises `UserError`
            where programs cannot be shut in.
    """

    def run(arguments: Mapping[str, Any]) -> str:
        walls = shared_pool(LIMITS) if pool is None else pool
        return _output(walls, arguments["code"])

    return Tool(
        name="python",
        description="Runs a Python program and tells what it printed. Nothing is kept between calls.",
        parameters=_SCHEMA,
        run=run,
        is_reproducible=False,
    )


def _output(walls: CodePool, program: str) -> str:
    """Raises ToolRefusal: the program failed, or prints something else each time."""
    first, second = (walls.output_of(program) for _ in range(2))
    if _told(first) != _told(second):
        raise ToolRefusal("the program does not print the same every time")
    if first.cause is not Cause.EXITED or first.exit_code != 0:
        raise ToolRefusal(explain(first))
    return first.stdout.decode("utf-8", "replace").rstrip("\n")


def _told(ending: Ending) -> tuple[object, ...]:
    return ending.cause, ending.exit_code, ending.stdout, explain(ending)
