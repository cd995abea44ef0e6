"""`farflung grade math`: is this answer right? One pair, or a file of them."""

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from farflung.cli.grade_file import grade_file
from farflung.cli.grade_output import as_json, as_text
from farflung.envs.arguments import parse_arguments
from farflung.envs.graders.math import MathGrader
from farflung.envs.graders.math_options import MathOptions
from farflung.errors import UserError
from farflung.sandbox.math.pool import MathPool, require_math_verify
from farflung.wire.pool import EnvArg


def run_grade_math(arguments: Namespace) -> int:
    """Print a verdict, or one for each line of a file; 2 when a line could not be read."""
    options = _options(arguments.policy)
    policy = parse_arguments(MathOptions, "math", options).policy()
    _check(arguments)
    with ExitStack() as stack:
        pool = None if arguments.exact else stack.enter_context(_pool())
        if arguments.file is not None:
            return grade_file(Path(arguments.file), options, pool, with_json=arguments.json)
        decision = MathGrader(policy, pool).grade_answer(arguments.gold, arguments.answer)
    sys.stdout.write(f"{as_json(decision) if arguments.json else as_text(decision)}\n")
    return 0


def _check(arguments: Namespace) -> None:
    has_pair = arguments.gold is not None and arguments.answer is not None
    has_half = (arguments.gold is None) != (arguments.answer is None)
    if has_half or has_pair == (arguments.file is not None):
        raise UserError("give --gold and --answer, or --file with a pair on each line")


def _pool() -> MathPool:
    try:
        require_math_verify()
    except UserError as error:
        raise UserError(f"{error}, or --exact to grade by the exact rules alone") from error
    return MathPool()


def _options(words: Sequence[str]) -> dict[str, EnvArg]:
    """`percent=ignore` and the like; a value that is no number, true or false is text."""
    options: dict[str, EnvArg] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise UserError(f"--policy {word}: write KEY=VALUE, for example percent=ignore")
        options[name] = _scalar(value)
    return options


def _scalar(text: str) -> EnvArg:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (int, float, bool)) else text
