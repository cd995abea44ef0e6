"""Does a reply keep to all of its instructions?

    reference   JSON {"instruction_id_list": ["punctuation:no_comma", ...], "kwargs": [{...}, ...]}, as IFEval has it
    strict      each constraint holds for the reply after its thinking part
    loose       each holds for at least one of eight readings: as it is, without its first line, without its last,
                without both, and these four without asterisks. Forgives an introduction, a farewell and emphasis; it
                also forgives more than it should, so a reward is strict unless a task says otherwise
    partial     only if asked for: the share of constraints that hold

A reply without a letter or digit keeps to nothing, and characters that nobody sees are taken out before anything is
looked at: they would split a forbidden word.
"""

import re
from functools import lru_cache
from typing import Any

import msgspec

from farflung.rewards.decision import Decision
from farflung.rewards.verifiers.instructions.constraint import Constraint
from farflung.rewards.verifiers.instructions.kinds import UnknownInstruction, constraint
from farflung.rewards.verifiers.spoken import spoken_text

_UNSEEN = re.compile("[\x00\u00ad\u180e\u200b-\u200f\u2060-\u2064\ufeff]")
"""Zero-width spaces and joiners, direction marks, soft hyphens, NUL."""
NUM_CACHED = 256
MAX_INSTRUCTIONS = 32


class Instructions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reference."""

    instruction_id_list: tuple[str, ...]
    kwargs: tuple[dict[str, Any], ...]


def grade_instructions(reference: str, completion: str, *, loose: bool = False, partial: bool = False) -> Decision:
    """1.0 if every constraint of `reference` holds; None if it has none, or one that is not known."""
    try:
        constraints = _constraints(reference)
    except UnknownInstruction as problem:
        return Decision(None, "gold_unparseable", str(problem)[:200])
    text = _UNSEEN.sub("", spoken_text(completion)).strip()
    if not any(map(str.isalnum, text)):
        return Decision(0.0, "no_answer")
    readings = [reading for reading in _readings(text) if reading.strip()] if loose else [text]
    broken = [number for number, each in enumerate(constraints) if not any(map(each.holds, readings))]
    if not broken:
        return Decision(1.0, "all_followed")
    share = (len(constraints) - len(broken)) / len(constraints) if partial else 0.0
    return Decision(share, "not_followed", f"instruction {broken[0] + 1} of {len(constraints)} is not followed")


@lru_cache(NUM_CACHED)
def _constraints(reference: str) -> tuple[Constraint, ...]:
    try:
        told = msgspec.json.decode(reference, type=Instructions)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise UnknownInstruction('the reference is JSON {"instruction_id_list": [...], "kwargs": [...]}') from None
    kinds, arguments = told.instruction_id_list, told.kwargs
    if not 1 <= len(kinds) <= MAX_INSTRUCTIONS or len(kinds) != len(arguments):
        raise UnknownInstruction(
            f"{len(kinds)} instructions with {len(arguments)} sets of arguments: 1 to {MAX_INSTRUCTIONS} of each"
        )
    return tuple(constraint(kind, each) for kind, each in zip(kinds, arguments, strict=True))


def _readings(text: str) -> list[str]:
    lines = text.split("\n")
    cut = ["\n".join(part).strip() for part in (lines, lines[1:], lines[:-1], lines[1:-1])]
    return cut + [reading.replace("*", "") for reading in cut]
