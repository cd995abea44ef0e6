"""Unified diffs: those of the standard library apply, those that are a little off do not."""

import difflib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rewards.verifiers.git_diff import grade_git_diff

BEFORE = "one\ntwo\nthree\nfour\nfive\n"


def task(before: dict[str, str], after: dict[str, str], **more: int) -> str:
    return json.dumps({"before": before, "after": after, **more})


def diff_of(before: str, after: str, num_context: int = 3) -> str:
    """As git writes it."""
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a/f", "b/f", n=num_context)
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


_texts = st.lists(st.sampled_from(["a\n", "b\n", "\n", " c\n", "+\n"]), max_size=12).map("".join)
_ends = st.sampled_from(["", "x"])


@given(before=_texts, after=_texts, before_end=_ends, after_end=_ends, num_context=st.integers(0, 3))
def test_a_right_diff_of_any_two_texts_scores_1(
    before: str, after: str, before_end: str, after_end: str, num_context: int
) -> None:
    before, after = before + before_end, after + after_end
    decision = grade_git_diff(
        task({"f": before}, {"f": after}), "```diff\n" + diff_of(before, after, num_context) + "```"
    )
    assert decision.verdict == (None if before == after else 1.0)


GOOD = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@ heading\n one\n-two\n+2\n three\n"
TASK = task({"f": BEFORE}, {"f": BEFORE.replace("two", "2")})


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("@@ -1,3", "@@ -2,3", "not_applicable"),
        ("+1,3 @@", "+2,3 @@", "not_applicable"),
        ("-1,3 +1,3", "-1,4 +1,4", "not_applicable"),
        ("-1,3 +1,3", "-1,2 +1,2", "not_applicable"),
        (" one", " 0ne", "not_applicable"),
        (" one", "one", "not_applicable"),
        ("+2", "+3", "other_result"),
        ("a/f", "a/g", "not_applicable"),
        ("+++ b/f", "+++ b/g", "not_applicable"),
        ("+++ b/f\n", "", "not_applicable"),
        ("--- a/f", "--- /dev/null", "not_applicable"),
        (GOOD, GOOD + GOOD, "not_applicable"),
        (GOOD, "Here you are:\n" + GOOD, "not_applicable"),
        (GOOD, "--- a/f\n+++ b/f\n", "not_applicable"),
        ("three\n", "three\n\\ No newline at end of file\n", "not_applicable"),
    ],
)
def test_a_diff_that_is_a_little_off_scores_0(old: str, new: str, rule: str) -> None:
    assert old in GOOD
    assert grade_git_diff(TASK, GOOD).verdict == 1.0
    decision = grade_git_diff(TASK, GOOD.replace(old, new))
    assert (decision.verdict, decision.rule) == (0.0, rule)


def test_files_come_and_go() -> None:
    told = task({"old": "x\n", "kept": "k\n"}, {"new": "y\n", "kept": "k\n"})
    diff = (
        "diff --git a/old b/old\ndeleted file mode 100644\nindex 1..0\n--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+y\n"
    )
    assert grade_git_diff(told, diff).verdict == 1.0


def test_replacing_everything_is_an_answer_only_where_the_task_allows_it() -> None:
    after = BEFORE.replace("two", "2")
    everything = (
        f"--- a/f\n+++ b/f\n@@ -1,5 +1,5 @@\n-{'-'.join(BEFORE.splitlines(True))}+{'+'.join(after.splitlines(True))}"
    )
    assert grade_git_diff(TASK, everything).verdict == 1.0
    told = task({"f": BEFORE}, {"f": after}, max_changed=2)
    assert grade_git_diff(told, everything).rule == "changes_too_much"
    assert grade_git_diff(told, GOOD).verdict == 1.0


@pytest.mark.parametrize("told", ["", "{}", '{"before": {}, "after": {}}', '{"before": {"f": 1}, "after": {}}'])
def test_a_task_without_a_change_is_no_grade(told: str) -> None:
    assert grade_git_diff(told, GOOD).verdict is None
