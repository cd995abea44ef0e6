"""The one place where errors become a sentence and an exit code.

| what happened                                            | exit | what the person gets              |
|----------------------------------------------------------|------|-----------------------------------|
| `UserError`, full disk, busy port, unusable path         | 2    | the sentence: value, rule, fix    |
| coordinator not reachable for too long (`Transient`)     | 2    | the sentence                      |
| coordinator refused or talks something else              | 2    | the sentence                      |
| `OurFault`: we cannot do our own work, and know why      | 1    | the sentence and the log          |
| anything else: a bug                                     | 1    | a sentence and the log            |
| Ctrl-C                                                   | 130  | one word                          |
"""

import errno
from dataclasses import dataclass

from farflung.errors import OurFault, PeerFault, Transient, UserError

EXIT_BUG = 1
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG})
_FULL_MARKS = ("disk is full", "No space left on device")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """What to tell, and how to exit."""

    exit_code: int
    sentence: str
    is_bug: bool = False
    """Whether somebody needs the traceback."""


def classify(error: BaseException) -> Ending:
    """How an error ends the process."""
    if isinstance(error, KeyboardInterrupt):
        return Ending(exit_code=EXIT_INTERRUPTED, sentence="stopped")
    if isinstance(error, UserError):
        return Ending(exit_code=EXIT_USER_ERROR, sentence=str(error))
    for cause in _chain(error):
        sentence = _about_the_machine(cause)
        if sentence:
            return Ending(exit_code=EXIT_USER_ERROR, sentence=sentence)
    if isinstance(error, Transient):
        return Ending(
            exit_code=EXIT_USER_ERROR,
            sentence=f"{error}; is the coordinator running, and is this its address?",
        )
    if isinstance(error, PeerFault) or _is_refusal(error):
        return Ending(exit_code=EXIT_USER_ERROR, sentence=f"the coordinator does not go along: {error}")
    if isinstance(error, OurFault):
        return Ending(exit_code=EXIT_BUG, sentence=str(error), is_bug=True)
    return Ending(exit_code=EXIT_BUG, sentence=f"unexpected {type(error).__name__}: {error}", is_bug=True)


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what it came from, nearest first; members of groups too."""
    chain: list[BaseException] = []
    rest: list[BaseException] = [error]
    while rest:
        current = rest.pop(0)
        if current in chain:
            continue
        chain.append(current)
        if isinstance(current, BaseExceptionGroup):
            rest += current.exceptions
        rest += [cause for cause in (current.__cause__, current.__context__) if cause is not None]
    return chain


def _about_the_machine(error: BaseException) -> str | None:
    """A sentence if the machine is the cause and a person can change it."""
    if isinstance(error, OSError):
        place = f" ({error.filename})" if error.filename else ""
        if error.errno in _FULL:
            return f"the disk is full{place}: free some space and start again, the run continues where it was"
        if error.errno == errno.EADDRINUSE:
            return (
                f"the port is in use{place}: {error.strerror or error}; stop the other process or choose another one "
                "with --coordinator.port (0 = any free one)"
            )
        if error.errno in _FORBIDDEN and error.filename:
            return f"{error.filename}: {error.strerror}; choose a folder that can be written to with --run.dir"
    if any(mark in str(error) for mark in _FULL_MARKS):
        return f"{error}: free some space and start again, the run continues where it was"
    return None


def _is_refusal(error: BaseException) -> bool:
    from farflung.api.errors import Refused  # a light module, but commands that talk to nobody need none of `api`

    return isinstance(error, Refused)
