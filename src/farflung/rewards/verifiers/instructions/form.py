"""The form of a reply: bullets, highlights, sections, JSON, a title, one of three fixed answers."""

import re
from typing import Annotated

from msgspec import Meta

from farflung.rewards.verifiers.instructions.constraint import Constraint
from farflung.rewards.verifiers.json_text import NotJson, read_json
from farflung.rewards.verifiers.spoken import last_block

FIXED_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")

_BULLET = re.compile(r"[ \t]*[*\-\u2022][ \t]+\S")
Count = Annotated[int, Meta(ge=0, le=10**4)]


class NumberBulletLists(Constraint, frozen=True, kw_only=True):
    """Exactly so many lines that begin with *, - or a bullet and white space."""

    num_bullets: Count

    def holds(self, text: str) -> bool:
        return sum(_BULLET.match(line) is not None for line in text.splitlines()) == self.num_bullets


class ConstrainedResponse(Constraint, frozen=True, kw_only=True):
    """Contains one of the three fixed answers, letter by letter."""

    def holds(self, text: str) -> bool:
        return any(answer in text for answer in FIXED_ANSWERS)


class NumberHighlightedSections(Constraint, frozen=True, kw_only=True):
    """At least so many of the form *text* or **text** within a line, not blank."""

    num_highlights: Count

    def holds(self, text: str) -> bool:
        return sum(len(_highlights(line)) for line in text.splitlines()) >= self.num_highlights


class MultipleSections(Constraint, frozen=True, kw_only=True):
    """At least so many lines that begin with the splitter and a number, such as "Section 1"; marks before it are free.

    The field is called as in IFEval, misspelling and all.
    """

    section_spliter: Annotated[str, Meta(min_length=1, max_length=50)]
    num_sections: Count

    def holds(self, text: str) -> bool:
        head = re.compile(rf"[\s*#_>]{{0,16}}{re.escape(self.section_spliter.strip())}[ \t]{{0,8}}[0-9]")
        return sum(head.match(line) is not None for line in text.splitlines()) >= self.num_sections


class JsonFormat(Constraint, frozen=True, kw_only=True):
    """The whole reply is one JSON value, in a fenced block or bare."""

    def holds(self, text: str) -> bool:
        stripped = text.strip()
        block = last_block(stripped) if stripped.startswith("```") and stripped.endswith("```") else None
        try:
            read_json(stripped if block is None else block)
        except NotJson:
            return False
        return True


class Title(Constraint, frozen=True, kw_only=True):
    """A line contains <<title>>, not blank; the first << of a line counts."""

    def holds(self, text: str) -> bool:
        for line in text.splitlines():
            _, opened, rest = line.partition("<<")
            inner, closed, _ = rest.partition(">>")
            if opened and closed and inner.strip(" <>"):
                return True
        return False


def _highlights(line: str) -> list[str]:
    """Pairs of runs of one or two asterisks with something between them."""
    found, parts = [], re.split(r"(\*+)", line)
    index = 1
    while index + 2 < len(parts):
        mark, inner, close = parts[index], parts[index + 1], parts[index + 2]
        if len(mark) <= 2 and mark == close and inner.strip():
            found.append(inner)
            index += 4
        else:
            index += 2
    return found
