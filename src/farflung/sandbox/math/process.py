"""One child as its parent sees it: started, asked, and ended. Says how a question ended, judges nothing."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from farflung.errors import Transient
from farflung.sandbox.framing import FrameError, receive_frame, send_frame
from farflung.sandbox.math.config import MathPoolConfig
from farflung.sandbox.math.protocol import LAST_WORDS, MAX_REPLY_BYTES, Reply

BYTES_PER_CHAR = 12
"""Of a question: two `\\uXXXX` escapes are the longest that a character becomes."""
_OWN_FAULTS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


class End(StrEnum):
    """How a child ended in the middle of a question."""

    CPU_SPENT = "cpu_spent"
    """The kernel ended it after its CPU time: the question's doing."""
    CRASHED = "crashed"
    """By a fault of its own, such as a full stack: the question's doing, if it happens again."""
    OUT_OF_TIME = "out_of_time"
    """The clock ran out before its CPU time did: the machine's doing."""
    LOST = "lost"
    """Killed from outside, or it said something that no child says."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one question."""

    word: Reply | End
    is_gold_read: bool
    """Whether the gold had been read by then; if not, what went wrong is the gold's."""


class MathChild:
    """A running child. Not thread-safe: one question at a time."""

    def __init__(self, config: MathPoolConfig, command: Sequence[str] | None = None) -> None:
        """Start it and wait until it is ready.

        Raises:
            Transient: it could not be started, or was not ready in time.
        """
        self._config = config
        self.num_questions = 0
        self._channel, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = _start(theirs, command or _command(config))
        except OSError as error:
            self._channel.close()
            raise Transient("a child for mathematics could not be started") from error
        if self._word(time.monotonic() + config.start_wall_s) is not Reply.READY:
            self.end()
            raise Transient("a child for mathematics did not become ready")

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, gold: str, answer: str) -> Outcome:
        """Put one question; after an `End` the child is gone."""
        deadline_s = time.monotonic() + self._config.wall_s
        self.num_questions += 1
        is_gold_read = False
        with suppress(OSError):  # a child that is gone: the missing reply says so
            send_frame(self._channel, [gold, answer], deadline_s=deadline_s)
        word = self._word(deadline_s)
        if word is Reply.GOLD_READ:
            is_gold_read = True
            word = self._word(deadline_s)
        if isinstance(word, Reply):
            if word in LAST_WORDS:
                return Outcome(word, is_gold_read)
            word = End.LOST
        self.end()
        return Outcome(word, is_gold_read)

    def forget(self) -> None:
        """Let go of a child that is another process's: close our end, and neither kill nor await it."""
        self._channel.close()
        self._process.returncode = 0

    def kill(self) -> None:
        """Kill it while another thread asks it; that thread finds it lost."""
        self._process.kill()

    def end(self) -> None:
        """Kill it if it still runs, and take its exit status."""
        self._channel.close()
        self._process.kill()
        self._process.wait()

    def _word(self, deadline_s: float) -> Reply | End:
        try:
            return Reply(receive_frame(self._channel, MAX_REPLY_BYTES, deadline_s=deadline_s))
        except TimeoutError:
            return End.OUT_OF_TIME
        except (FrameError, OSError, ValueError):
            return self._cause_of_death()

    def _cause_of_death(self) -> End:
        """What its exit status says; a child that still runs has broken the protocol."""
        try:
            status = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return End.LOST
        if status == -signal.SIGPROF:
            return End.CPU_SPENT
        return End.CRASHED if -status in _OWN_FAULTS else End.LOST


def _command(config: MathPoolConfig) -> list[str]:
    max_question_bytes = 2 * config.max_text_chars * BYTES_PER_CHAR + 16
    limits = map(str, (config.memory_bytes, config.cpu_s, max_question_bytes))
    return [sys.executable, "-P", "-s", "-B", "-m", "farflung.sandbox.math.child", *limits]


def _start(channel: socket.socket, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """An environment without secrets, and one hash seed: verdicts must not depend on the order of a set."""
    environment = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    if "PYTHONPATH" in os.environ:
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return subprocess.Popen(
        command,
        stdin=channel.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=environment,
        start_new_session=True,  # Ctrl-C in the terminal is for the parent, which ends its children
    )
