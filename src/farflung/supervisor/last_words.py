"""Why a process ended, in words: its exit code, and what it said last."""

import signal
from pathlib import Path

SENTENCE_PREFIX = "farflung: "
"""A role's own sentence about its end starts a line of its log with this."""

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


def last_words(log_path: Path, since_bytes: int = 0) -> str:
    """The sentence that a process left in its log after `since_bytes`, else its last line, else nothing."""
    try:
        with log_path.open("rb") as file:
            size_bytes = file.seek(0, 2)
            file.seek(max(since_bytes, size_bytes - MAX_TAIL_BYTES))
            text = file.read(MAX_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    return find_words(text)


def find_words(text: str) -> str:
    """From the last line that starts with the prefix to the end of `text`; without one, the last line with words."""
    lines = text.rstrip().splitlines()
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].startswith(SENTENCE_PREFIX):
            return "\n".join(lines[index:]).removeprefix(SENTENCE_PREFIX)[:MAX_WORDS_CHARS]
    return lines[-1].strip()[:MAX_WORDS_CHARS] if lines else ""
