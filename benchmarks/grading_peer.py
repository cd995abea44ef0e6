"""A child that grades as plain math-verify does, `verify(parse(gold), parse(answer))` with all its defaults.

It speaks the protocol of `farflung.sandbox.math`, so that a pool can end it when it hangs, which the library's own time
limits do not always prevent.
"""

import logging
import os
import socket

from math_verify import parse, verify

from farflung.sandbox.framing import receive_frame, send_frame
from farflung.sandbox.math.protocol import Reply

MAX_QUESTION_BYTES = 1 << 20


def is_equal(gold: str, answer: str) -> bool:
    """The verdict of the library."""
    return bool(verify(parse(gold), parse(answer)))


def main() -> None:
    logging.disable(logging.CRITICAL)
    channel = socket.socket(fileno=os.dup(0))
    send_frame(channel, Reply.READY)
    while (question := receive_frame(channel, MAX_QUESTION_BYTES)) is not None:
        send_frame(channel, Reply.GOLD_READ)
        send_frame(channel, Reply.EQUAL if is_equal(*question) else Reply.DIFFERENT)


if __name__ == "__main__":
    main()
