"""Null reward: the task has no rule of right and wrong, and says so.

For prompts that are sampled for their text alone (distillation, style, later human judgement). Every completion that
says something has no grade, so it makes no gradient and nobody is blamed for it; one that says nothing is 0, as with
every other grader. A constant 1 would be a reward for anything, a constant 0 would call everything wrong.
"""

from farflung.rewards.decision import Decision
from farflung.rewards.verifiers.spoken import spoken_text


def grade_null(reference: str, completion: str) -> Decision:  # noqa: ARG001 - there is nothing to compare with
    """None for every completion with text after its thinking part, else 0.0."""
    if not spoken_text(completion):
        return Decision(0.0, "no_answer")
    return Decision(None, "no_rule", "the task has no rule of right and wrong")
