"""Reward functions that raised: the library turns each into a 0 and a line of its log, which is all that is left of it.

This module does not know grades.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_SAID = ("Error calling reward function", "Error calling group reward function")
"""How the library's log says it, in all its releases from 0.1.9 to 0.3.1."""


class Failures(logging.Handler):
    """What was logged while it listened."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.sentences: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        sentence = record.getMessage()
        if sentence.startswith(_SAID):
            self.sentences.append(sentence)


@contextmanager
def failures_heard() -> Iterator[Failures]:
    """Listens to the library's logger, whatever else is done with its lines."""
    heard, logger = Failures(), logging.getLogger("verifiers")
    logger.addHandler(heard)
    try:
        yield heard
    finally:
        logger.removeHandler(heard)
