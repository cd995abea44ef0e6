"""Things that a reply must contain: placeholders in brackets, a postscript."""

import re
from typing import Annotated

from msgspec import Meta

from farflung.rewards.verifiers.instructions.constraint import Constraint

_PLACEHOLDER = re.compile(r"\[[^\[\]\n]+\]")


class NumberPlaceholders(Constraint, frozen=True, kw_only=True):
    """At least so many of the form [name]: no bracket and no line end inside."""

    num_placeholders: Annotated[int, Meta(ge=0, le=10**4)]

    def holds(self, text: str) -> bool:
        return len(_PLACEHOLDER.findall(text)) >= self.num_placeholders


class Postscript(Constraint, frozen=True, kw_only=True):
    """A line begins with the marker, such as P.S., and says more; case and list or emphasis marks do not matter."""

    postscript_marker: Annotated[str, Meta(min_length=1, max_length=50)]

    def holds(self, text: str) -> bool:
        marker = self.postscript_marker.strip().casefold()
        for line in text.splitlines():
            folded = line.strip().lstrip("*_#> ").casefold()
            if folded.startswith(marker) and folded[len(marker) :].strip("*_.: "):
                return True
        return False
