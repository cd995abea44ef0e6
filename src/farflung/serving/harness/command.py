"""A harness that is a program: a process for each attempt.

    standard input    the attempt as JSON
    environment       OPENAI_BASE_URL, OPENAI_API_KEY, FARFLUNG_MODEL, FARFLUNG_TASK_ID, FARFLUNG_SAMPLE
    standard output   the last line that is `reward = 0.5`, `reward: 0.5` or `{"reward": 0.5, "correct": 1}` counts
    exit code         other than 0: the attempt has no outcome

The program has all rights of whoever starts it. This module does not know servers.
"""

import asyncio
import contextlib
import json
import math
import os
import re
import signal
from collections import deque
from collections.abc import Sequence

from farflung.errors import UserError
from farflung.serving.harness.protocol import Attempt, Outcome

MAX_LINES = 1000
"""Last lines of a program's output that are looked at."""
MAX_LINE_BYTES = 1 << 20
_REWARD = re.compile(r"reward\s*[:=]\s*(\S+)", re.IGNORECASE)


class CommandHarness:
    """Call it with an attempt.

    Args:
        words: the program and its arguments.
    """

    def __init__(self, words: Sequence[str], *, timeout_s: float) -> None:
        self._words, self._timeout_s = words, timeout_s

    async def __call__(self, attempt: Attempt) -> Outcome:
        """Raises UserError: the program cannot be started."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **_variables(attempt)},
                start_new_session=True,
                limit=MAX_LINE_BYTES,
            )
        except OSError as error:
            raise UserError(f"--harness {self._words[0]} cannot be started: {error.strerror or error}") from error
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(self._timeout_s):
                _, said, complaints = await asyncio.gather(
                    _tell(process.stdin, attempt.as_json()), _last_lines(process.stdout), _last_lines(process.stderr)
                )
                code = await process.wait()
        except TimeoutError:
            return Outcome(problem=f"not done after {self._timeout_s:g} s")
        except ValueError:
            return Outcome(problem=f"it printed a line of more than {MAX_LINE_BYTES} bytes")
        finally:
            _kill(process)
            await process.wait()
        if code:
            return Outcome(
                problem=f"it ended with {code}: {complaints[-1][:500] if complaints else 'nothing on stderr'}"
            )
        return outcome_of(said)


def outcome_of(lines: Sequence[str]) -> Outcome:
    """By the last line that tells a reward."""
    for line in reversed(lines):
        found = _told(line.strip())
        if found is not None:
            return found
    return Outcome()


def _told(line: str) -> Outcome | None:
    if line.startswith("{"):
        try:
            table = json.loads(line)
        except (ValueError, RecursionError):
            return None
        reward = _number(table.get("reward")) if isinstance(table, dict) else None
        return None if reward is None else Outcome(reward=reward, correct=_number(table.get("correct")))
    match = _REWARD.fullmatch(line)
    try:
        reward = _number(float(match[1])) if match else None
    except ValueError:
        return None
    return None if reward is None else Outcome(reward=reward)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _variables(attempt: Attempt) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": attempt.base_url,
        "OPENAI_API_KEY": attempt.api_key,
        "FARFLUNG_MODEL": attempt.model,
        "FARFLUNG_TASK_ID": attempt.task.task_id,
        "FARFLUNG_SAMPLE": str(attempt.sample),
    }


async def _tell(stdin: asyncio.StreamWriter, text: str) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a program need not read what it is told
        stdin.write(text.encode())
        await stdin.drain()
        stdin.close()
        await stdin.wait_closed()


async def _last_lines(stream: asyncio.StreamReader) -> list[str]:
    """Raises ValueError: a line is too long."""
    lines: deque[str] = deque(maxlen=MAX_LINES)
    while line := await stream.readline():
        lines.append(line.decode(errors="replace").rstrip("\n"))
    return list(lines)


def _kill(process: asyncio.subprocess.Process) -> None:
    """With whatever it started and left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
