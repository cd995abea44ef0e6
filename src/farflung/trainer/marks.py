"""Named moments of the trainer's life, told to whoever wants to know: tests end the process there.

    FARFLUNG_KILL_AT=announced@3 farflung trainer ...        kill -9 of itself when version 3 has just been announced

Nothing else may ever follow from a mark. The version is the one that is in the making.
"""

import os
import signal
from collections.abc import Callable
from enum import StrEnum

from farflung.errors import UserError

VARIABLE = "FARFLUNG_KILL_AT"


class Mark(StrEnum):
    """In the order in which a version passes them."""

    BEGUN = "begun"
    """Version 0: weights are ready, nothing is saved or announced."""
    WAITING = "waiting"
    """About to take a batch."""
    BATCH_TAKEN = "batch_taken"
    STEPPING = "stepping"
    """The optimizer step runs in its thread."""
    STEPPED = "stepped"
    EVALUATING = "evaluating"
    """The evaluation runs in its thread."""
    ROLLING_BACK = "rolling_back"
    """A refused step's weights are gone, its batch is not yet dropped."""
    RELEASED = "released"
    """The batch is given back, figures are written, nothing is saved."""
    SAVING = "saving"
    """Files of the checkpoint are being written."""
    SAVED = "saved"
    """The checkpoint is in place, the version not announced."""
    ANNOUNCED = "announced"
    """The coordinator has the version, the trainer has not taken note."""
    ENDING = "ending"
    """The last version is out, the run not declared finished."""


Marks = Callable[[Mark, int], None]
"""Told the moment and the version."""


def pass_by(mark: Mark, version: int) -> None:
    """Nobody wants to know."""


def kill_at(text: str) -> Marks:
    """Marks that end this process with SIGKILL at `mark@version`.

    Raises:
        UserError: not of that form.
    """
    name, _, number = text.partition("@")
    if name not in set(Mark) or not number.isdecimal():
        raise UserError(f"{VARIABLE} is {text!r}: it must be MARK@VERSION, with one of {', '.join(Mark)}")
    fatal = (Mark(name), int(number))

    def mark_passed(mark: Mark, version: int) -> None:
        if (mark, version) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    return mark_passed
