"""The child: reads questions from its standard input, a socket, until it closes; answers each with a word.

Its limits are the kernel's: address space, no files written, no core, and a timer of CPU time that ends the process in
the middle of a multiplication, where no Python signal handler would run. Where Linux can, it also makes no system call
that is not on the list for programs (`sandbox.isolation`), so no socket, and none that changes a file or starts a
program. What libraries print goes nowhere. It ends by itself when the parent is gone, after `cpu_s` at the latest.
"""

import os
import resource
import signal
import socket
import sys
from contextlib import suppress

from farflung.sandbox.framing import receive_frame, send_frame
from farflung.sandbox.isolation.landlock import restrict_files
from farflung.sandbox.isolation.seccomp import load_filter
from farflung.sandbox.math.protocol import Reply

MAX_OPEN_FILES = 32
WARM_UP = (r"\frac{1}{2}", r"\{1,2\}", r"x^2+\sqrt{3}", r"2<x\le3", r"\begin{pmatrix}1&2\end{pmatrix}")
"""Parsed before the first question: the parser builds its tables when they are first needed, half a second of CPU."""


def main(memory_bytes: int, cpu_s: float, max_question_bytes: int) -> None:
    """Serve one parent."""
    channel = socket.socket(fileno=os.dup(0))
    _silence()
    _limit(memory_bytes)
    from farflung.sandbox.math.opinion import opinion

    for text in WARM_UP:
        opinion(text, text, lambda: None)
    _shut_in()
    send_frame(channel, Reply.READY)
    while (question := receive_frame(channel, max_question_bytes)) is not None:
        gold, answer = question
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        try:
            reply = opinion(gold, answer, lambda: send_frame(channel, Reply.GOLD_READ))
        except MemoryError:
            reply = Reply.OUT_OF_MEMORY
        signal.setitimer(signal.ITIMER_PROF, 0)
        send_frame(channel, reply)


def _silence() -> None:
    """Standard input, output and error lead nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def _limit(memory_bytes: int) -> None:
    """Hard limits: they cannot be raised again."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for limit, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
    ):
        resource.setrlimit(limit, (value, value))


def _shut_in() -> None:
    """For good. Elsewhere than on Linux, and on a machine type without a list, the limits are all that there is."""
    if sys.platform == "linux":
        restrict_files(["/"], [], [])
        with suppress(OSError):
            load_filter(read_only=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
