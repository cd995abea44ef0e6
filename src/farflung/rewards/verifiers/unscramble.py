"""Unscramble: sentences that were shuffled, in their right order.

    reference   a JSON list of the sentences, at least two
    answer      one sentence a line, in any list marking (`1.`, `2)`, `-`, `*`), or all of them as one paragraph
    1.0         the right order
    partial     only if asked for: among the n - 1 pairs of neighbours of the right order, the share that are neighbours
                in the answer too, if the answer has exactly the sentences of the reference. A random order earns
                1 / n on average; nothing but the right order earns 1

White space inside a sentence and around it does not matter, every other character does.
"""

import json
import re
from collections import Counter
from itertools import pairwise

from farflung.rewards.decision import Decision
from farflung.rewards.verifiers.spoken import answer_text

_MARKING = re.compile(r"[ \t]*(?:[-*\u2022]|\(?[0-9]{1,4}[.):])[ \t]+")


def grade_unscramble(reference: str, completion: str, *, partial: bool = False) -> Decision:
    """1.0 for the order of `reference`; None if that is no list of at least two sentences."""
    expected = _sentences(reference)
    if expected is None:
        return Decision(None, "gold_unparseable", "the reference is a JSON list of at least two sentences")
    text = answer_text(completion)
    if not text.strip():
        return Decision(0.0, "no_answer")
    lines = [line for line in text.splitlines() if line.strip()]
    as_written = [_squeezed(line) for line in lines]
    if as_written == expected or _squeezed(text) == " ".join(expected):
        return Decision(1.0, "same_order")
    found = [_squeezed(_without_marking(line)) for line in lines]
    if found == expected:
        return Decision(1.0, "same_order")
    if Counter(found) != Counter(expected):
        return Decision(0.0, "other_sentences")
    if not partial:
        return Decision(0.0, "other_order")
    kept = Counter(_pairs(found)) & Counter(_pairs(expected))
    share = kept.total() / (len(expected) - 1)
    return Decision(min(share, 1 - 1 / len(expected)), "share_of_neighbours")


def _pairs(sentences: list[str]) -> list[tuple[str, str]]:
    return list(pairwise(sentences))


def _sentences(reference: str) -> list[str] | None:
    try:
        read = json.loads(reference)
    except (ValueError, RecursionError):
        return None
    if not isinstance(read, list) or len(read) < 2 or not all(isinstance(each, str) and each.strip() for each in read):
        return None
    return [_squeezed(sentence) for sentence in read]


def _without_marking(line: str) -> str:
    match = _MARKING.match(line)
    return line[match.end() :] if match else line


def _squeezed(text: str) -> str:
    return " ".join(text.split())
