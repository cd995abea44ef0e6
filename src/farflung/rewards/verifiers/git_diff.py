"""Git diff: a unified diff that makes the files after of the files before.

    reference   JSON {"before": {path: text}, "after": {path: text}, "max_changed": 12}
    1.0         the diff applies exactly (`unified_diff`) and gives `after`
    max_changed optional: most lines that it may remove and add together, so that "remove all, add all" is no answer

The diff is marked with <answer>, in a fenced block, or the whole reply.
"""

import msgspec

from farflung.rewards.decision import Decision
from farflung.rewards.verifiers.spoken import answer_text
from farflung.rewards.verifiers.unified_diff import NotADiff, apply_diff, parse_diff


class DiffTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reference."""

    before: dict[str, str]
    after: dict[str, str]
    max_changed: int | None = None


def grade_git_diff(reference: str, completion: str) -> Decision:
    """1.0 for a diff from before to after; None if the reference is not such a pair, or there is nothing to change."""
    try:
        task = msgspec.json.decode(reference, type=DiffTask)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return Decision(None, "gold_unparseable", 'the reference is JSON {"before": {...}, "after": {...}}')
    if task.before == task.after:
        return Decision(None, "gold_unchanged")
    text = answer_text(completion)
    if not text.strip():
        return Decision(0.0, "no_answer")
    try:
        files = parse_diff(text)
        after = apply_diff(files, task.before)
    except NotADiff as problem:
        return Decision(0.0, "not_applicable", str(problem))
    if after != task.after:
        return Decision(0.0, "other_result")
    num_changed = sum(hunk.num_changed for each in files for hunk in each.hunks)
    if task.max_changed is not None and num_changed > task.max_changed:
        return Decision(0.0, "changes_too_much", f"{num_changed} lines changed, at most {task.max_changed} allowed")
    return Decision(1.0, "same_result")
