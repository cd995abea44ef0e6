import os
import signal

import pytest

from farflung.errors import UserError
from farflung.trainer.marks import Mark, kill_at, pass_by


def test_only_the_moment_that_was_named_is_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    marks = kill_at("saved@3")
    for mark, version in ((Mark.SAVED, 2), (Mark.ANNOUNCED, 3), (Mark.SAVING, 3)):
        marks(mark, version)
    assert killed == []
    marks(Mark.SAVED, 3)
    assert killed == [(os.getpid(), signal.SIGKILL)]


@pytest.mark.parametrize("text", ["", "saved", "saved@", "saved@-1", "safed@1", "@1", "saved@1.5"])
def test_a_moment_that_there_is_not_is_refused_with_the_list(text: str) -> None:
    with pytest.raises(UserError, match="it must be MARK@VERSION, with one of begun, waiting, batch_taken"):
        kill_at(text)


def test_by_default_nothing_follows() -> None:
    for mark in Mark:
        pass_by(mark, 0)
