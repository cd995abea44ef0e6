"""Why a process ended, in words: its exit code, and what it said last."""

import re
import signal
from pathlib import Path

SENTENCE_PREFIX = "farflung: "
"""A role's own sentence about its end starts a line of its log with this."""

_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")
"""Start of a line as `telemetry.logs` writes it."""
_TOLD_TO_END = frozenset({0, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT})

MAX_TAIL_BYTES = 8192
MAX_WORDS_CHARS = 2000


def how_it_ended(code: int) -> str:
    """ "ended with code 1", "was killed by SIGKILL (out of memory?)"; negative codes are signals."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"


def last_words(log_path: Path, code: int, since_bytes: int = 0) -> str:
    """What a process that ended with `code` said of its end in its log after `since_bytes`; perhaps nothing."""
    try:
        with log_path.open("rb") as file:
            size_bytes = file.seek(0, 2)
            file.seek(max(since_bytes, size_bytes - MAX_TAIL_BYTES))
            text = file.read(MAX_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    return find_words(text, code)


def find_words(text: str, code: int) -> str:
    """The sentence of the role, to the end of `text`; without one, the last line that is no log line.

    A process that was told to end has left no words, so nothing is made up for it.
    """
    lines = text.rstrip().splitlines()
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].startswith(SENTENCE_PREFIX):
            return "\n".join(lines[index:]).removeprefix(SENTENCE_PREFIX)[:MAX_WORDS_CHARS]
    if code in _TOLD_TO_END:
        return ""
    words = [line.strip() for line in lines if line.strip() and not _LOG_LINE.match(line)]
    return words[-1][:MAX_WORDS_CHARS] if words else ""
