"""A verdict as people and programs read it: 1, 0 or none (`null`), and the rule that decided."""

import json

from farflung.rewards.decision import Decision


def verdict_word(decision: Decision) -> str:
    """`1`, `0`, a share such as `0.5`, or `none`."""
    return "none" if decision.verdict is None else f"{decision.verdict:g}"


def as_text(decision: Decision) -> str:
    """`1  same_number`, with the detail where there is one."""
    detail = f"  ({decision.detail})" if decision.detail else ""
    return f"{verdict_word(decision)}  {decision.rule}{detail}"


def as_json(decision: Decision, line: int | None = None) -> str:
    """An object of one line."""
    place = {} if line is None else {"line": line}
    verdict = decision.verdict
    whole = int(verdict) if verdict is not None and verdict == int(verdict) else verdict
    return json.dumps({**place, "verdict": whole, "rule": decision.rule, "detail": decision.detail})
