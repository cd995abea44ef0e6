"""What each error ends in: a sentence and an exit code."""

import errno
import os
import sqlite3

import pytest

from farflung.api.errors import Refused
from farflung.cli.boundary import Ending, classify
from farflung.errors import OurFault, PeerFault, Transient, UserError


def os_error(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path) if path else OSError(number, os.strerror(number))


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "exit_code", "words"),
    [
        (UserError("pool.group_size is 1"), 2, "pool.group_size is 1"),
        (Transient("coordinator at http://x: gone"), 2, "is the coordinator running, and is this its address?"),
        (Refused("wrong_pool", "another pool"), 2, "the coordinator does not go along: another pool [wrong_pool]"),
        (PeerFault("too_large", "9 bytes"), 2, "the coordinator does not go along: too_large: 9 bytes"),
        (os_error(errno.ENOSPC, "/runs/x"), 2, "the disk is full (/runs/x): free some space"),
        (os_error(errno.EDQUOT), 2, "the disk is full: free some space"),
        (os_error(errno.EADDRINUSE), 2, "--coordinator.port"),
        (os_error(errno.EACCES, "/root/runs"), 2, "/root/runs: Permission denied; choose a folder"),
        (os_error(errno.EROFS, "/runs"), 2, "/runs: Read-only file system"),
        (caused(OurFault("cannot save"), os_error(errno.ENOSPC)), 2, "the disk is full: free some space"),
        (OurFault("put a/b: No space left on device (os error 28)"), 2, "No space left on device"),
        (caused(RuntimeError("x"), sqlite3.OperationalError("database or disk is full")), 2, "disk is full"),
        (ExceptionGroup("two", [ValueError("a"), os_error(errno.ENOSPC)]), 2, "the disk is full"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_what_a_person_can_change_ends_in_a_sentence(error: BaseException, exit_code: int, words: str) -> None:
    ending = classify(error)
    assert (ending.exit_code, ending.is_bug) == (exit_code, False)
    assert words in ending.sentence


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OurFault("no finite weights"), "no finite weights"),
        (KeyError("a"), "unexpected KeyError: 'a'"),
        (os_error(errno.EIO), "unexpected OSError: [Errno 5] Input/output error"),
    ],
)
def test_our_own_faults_ask_for_the_traceback(error: Exception, sentence: str) -> None:
    assert classify(error) == Ending(exit_code=1, sentence=sentence, is_bug=True)


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert classify(first).is_bug
