"""ASCII tree: a tree drawn in characters, line by line as the reference draws it.

    1.0       the same lines, but for white space at their ends and blank lines before, between and after them
    partial   only if asked for: |common| / |either| over the lines with their ancestors, multiple lines counted. A line
              that is drawn otherwise, or hangs under another parent, is not common, and neither are its children.
              All lines in another order earn n / (n + 1)

An ancestor of a line is the nearest line above it whose label begins further left. Linear, whatever the depth.
"""

import re
from collections import Counter

from farflung.rewards.decision import Decision
from farflung.rewards.verifiers.spoken import answer_text

_DRAWING = re.compile(r"[\s|`+\\\-\u2500-\u257f]*")
"""What stands before a label: white space, ASCII branches, box drawing characters."""


def grade_ascii_tree(reference: str, completion: str, *, partial: bool = False) -> Decision:
    """1.0 for the tree `reference`; None if that has no line."""
    expected = _lines(reference)
    if not expected:
        return Decision(None, "gold_blank")
    found = _lines(answer_text(completion))
    if not found:
        return Decision(0.0, "no_answer")
    if found == expected:
        return Decision(1.0, "same_tree")
    if not partial:
        return Decision(0.0, "other_tree")
    known: dict[tuple[int, str], int] = {}
    ours, theirs = Counter(_places(expected, known)), Counter(_places(found, known))
    share = (ours & theirs).total() / (ours | theirs).total()
    return Decision(min(share, 1 - 1 / (len(expected) + 1)), "share_of_lines")


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _places(lines: list[str], known: dict[tuple[int, str], int]) -> list[int]:
    """For each line a number that is the same for the same line under the same ancestors.

    Args:
        known: (number of the parent, line) -> number; grows.
    """
    places = []
    ancestors: list[tuple[int, int]] = []
    for line in lines:
        match = _DRAWING.match(line)
        column = match.end() if match else 0
        while ancestors and ancestors[-1][0] >= column:
            ancestors.pop()
        parent = ancestors[-1][1] if ancestors else 0
        place = known.setdefault((parent, line), len(known) + 1)
        places.append(place)
        ancestors.append((column, place))
    return places
