"""When trouble is no accident any more."""

import pytest

from farflung.errors import UserError
from farflung.validator.fault_watch import MAX_BROKEN, MAX_NOT_JUDGED, FaultWatch


def test_a_row_of_submissions_that_cannot_be_judged_ends_it_and_one_that_can_ends_the_row() -> None:
    watch = FaultWatch("sums")
    for _ in range(MAX_NOT_JUDGED - 1):
        watch.not_judged("x")
    watch.judged()
    for _ in range(MAX_NOT_JUDGED - 1):
        watch.not_judged("x")
    with pytest.raises(
        UserError, match=r"8 submissions in a row could not be judged with environment sums.*because why"
    ):
        watch.not_judged("why")


def test_an_environment_is_broken_when_empty_completions_fail_too_again_and_again() -> None:
    watch = FaultWatch("sums")
    for _ in range(MAX_BROKEN - 1):
        watch.judged(broken="x")
    watch.judged()
    for _ in range(MAX_BROKEN - 1):
        watch.judged(broken="x")
    with pytest.raises(UserError, match=r"environment sums cannot grade anything: 3 submissions.*and it burns"):
        watch.judged(broken="it burns")


def test_completions_that_a_sound_environment_cannot_grade_end_nothing() -> None:
    watch = FaultWatch("sums")
    for _ in range(100):
        watch.judged(broken="")
