"""Verdicts on a file of pairs, in order; lines that cannot be read are named and left out."""

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO

import msgspec

from farflung.cli.grade_output import as_json, as_text
from farflung.envs.arguments import parse_arguments
from farflung.envs.graders.math import MathGrader
from farflung.envs.graders.math_options import MathOptions
from farflung.errors import UserError
from farflung.rewards.decision import Decision
from farflung.sandbox.math.pool import MathPool
from farflung.wire.pool import EnvArg

MAX_LINE_BYTES = 1 << 20
"""Longest line that is read."""
WINDOW = 256
"""Lines that are graded at a time."""
NUM_THREADS = 2
"""They wait for children; exact rules run one at a time."""


class Pair(msgspec.Struct, frozen=True):
    """One line; other keys are for whoever wrote it."""

    gold: str
    answer: str
    policy: dict[str, EnvArg] = {}
    """Options for this pair, over those of the command line."""


def grade_file(path: Path, options: dict[str, EnvArg], pool: MathPool | None, *, with_json: bool) -> int:
    """Verdicts to standard output; bad lines, progress and a summary to standard error. Returns 2 for bad lines.

    Raises:
        UserError: the file cannot be opened.
    """
    counts: Counter[str] = Counter()
    with _opened(path) as file, ThreadPoolExecutor(NUM_THREADS) as threads:
        lines = _lines(file)
        while window := list(itertools.islice(lines, WINDOW)):
            found = threads.map(partial(_grade_line, options=options, pool=pool), window)
            for number, decision in enumerate(found, start=counts["line"] + 1):
                counts["line"] += 1
                counts[_print(path, number, decision, with_json=with_json)] += 1
            _show_progress(counts["line"])
    _clear_progress()
    unread = f", not read {counts['not read']}" if counts["not read"] else ""
    sys.stderr.write(f"right {counts['right']}, wrong {counts['wrong']}, not gradable {counts['open']}{unread}\n")
    return 2 if counts["not read"] else 0


def _opened(path: Path) -> IO[bytes]:
    """A pipe will do: lines are read once."""
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}; give a file with an object of gold and answer on each line"
        ) from error


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines; of one that is too long, one byte more than may be."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        yield line
        while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES + 1)


def _grade_line(line: bytes, options: dict[str, EnvArg], pool: MathPool | None) -> Decision | str:
    """A verdict, or what is wrong with the line; "" for a blank one."""
    if len(line) > MAX_LINE_BYTES:
        return f"the line is longer than {MAX_LINE_BYTES} bytes"
    if not line.strip():
        return ""
    try:
        pair = msgspec.json.decode(line, type=Pair)
        policy = parse_arguments(MathOptions, "math", {**options, **pair.policy}).policy()
    except (msgspec.DecodeError, UserError, UnicodeError) as error:
        return str(error)
    return MathGrader(policy, pool).grade_answer(pair.gold, pair.answer)


def _print(path: Path, number: int, decision: Decision | str, *, with_json: bool) -> str:
    """Write one line; what it counts as."""
    if decision == "":
        return "blank"
    if isinstance(decision, str):
        _clear_progress()
        sys.stderr.write(f"{path}:{number}: {decision}\n")
        return "not read"
    text = as_json(decision, number) if with_json else f"{number}: {as_text(decision)}"
    sys.stdout.write(f"{text}\n")
    return "open" if decision.verdict is None else "right" if decision.verdict >= 1.0 else "wrong"


def _show_progress(num_lines: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{num_lines} lines")
        sys.stderr.flush()


def _clear_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
