"""What messages say within a rendered prompt, told from what the chat template writes, where the two look the same.

A message may spell a special token, `<|im_end|>` say, or the beginning of one that the text behind it completes.
Rendered, it looks as if the template had ended the turn. So each place of a message where such a spelling starts gets a
mark, a character that stands for no text, before the template is applied: what has a mark in the result was said.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from farflung.errors import UserError

MARKS = tuple(map(chr, range(0xFDD0, 0xFDE0)))
"""Noncharacters of Unicode: no text is exchanged with them. The first that no message contains is used."""

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt's text."""

    text: str
    said: frozenset[int] = frozenset()
    """Places in `text` where a special token starts that a message spells; empty = no message spells one."""

    def rest(self, start: int) -> "Rendered":
        """From a place on."""
        return Rendered(self.text[start:], frozenset(place - start for place in self.said if place >= start))


class Spellings:
    """The special tokens of a tokenizer, as texts.

    Args:
        normalize: what is done to a text before these are looked for; None = nothing.
    """

    def __init__(self, tokens: Sequence[str], normalize: Callable[[str], str] | None = None) -> None:
        self.tokens = tuple(sorted(tokens, key=len, reverse=True))
        """The longest first."""
        self._firsts = sorted({token[0] for token in self.tokens})
        self._first = re.compile("|".join(map(re.escape, self._firsts)) or r"(?!)")
        self._beginnings = {token[:size] for token in self.tokens for size in range(1, len(token))}
        self._normalize = normalize
        self._normal = () if normalize is None else tuple(map(normalize, self.tokens))

    def first_in(self, text: str) -> str | None:
        """A special token that `text` spells, itself or when it is normalized; None if there is none."""
        if any(first in text for first in self._firsts):
            found = next((token for token in self.tokens if token in text), None)
            if found is not None:
                return found
        if self._normalize is None:
            return None
        normal = self._normalize(text)
        return next((token for token, other in zip(self.tokens, self._normal, strict=True) if other in normal), None)

    def starts(self, text: str) -> set[int]:
        """Where one starts in `text`, or would if the right text followed; 0 where normalizing makes one."""
        found = {place for place, _ in self.places(text)}
        found |= self.open_ends(text)
        if text and not found and self.first_in(text) is not None:
            found.add(0)
        return found

    def open_ends(self, text: str) -> set[int]:
        """Where the end of `text`, blanks aside or not, is the beginning of one."""
        longest = len(self.tokens[0]) if self.tokens else 0
        return {
            end - size
            for end in (len(text), len(text.rstrip()))
            for size in range(1, min(end + 1, longest))
            if text[end - size : end] in self._beginnings
        }

    def places(self, text: str) -> Iterator[tuple[int, str]]:
        """(place, the longest special token there) from left to right, overlaps included."""
        for match in self._first.finditer(text):
            token = next((each for each in self.tokens if text.startswith(each, match.start())), None)
            if token is not None:
                yield match.start(), token


def render_marked(messages: Messages, spellings: Spellings, render: Callable[[Messages], str]) -> Rendered:
    """Render the messages so that what they spell is known.

    Raises:
        UserError: the template refuses them, or does not show what they spell as it was said.
    """
    text = render(messages)
    texts = [each for message in messages for each in _texts(message)]
    is_spelled = any(spellings.first_in(each) is not None for each in texts)
    if not is_spelled and not any(map(spellings.open_ends, texts)):
        return Rendered(text)
    mark = next((each for each in MARKS if not any(each in said for said in texts)), None)
    if mark is None:
        raise UserError("the messages contain special tokens and every character that could mark them")
    pieces = render([_marked(message, spellings, mark) for message in messages]).split(mark)
    if "".join(pieces) != text:
        raise UserError("a message spells a special token, and the chat template does not leave it as it was said")
    said = frozenset(end - 1 for end in accumulate(map(len, pieces[:-1])))
    if is_spelled or any(place in said for place, _ in spellings.places(text)):
        return Rendered(text, said)
    return Rendered(text)


def _texts(value: Any) -> Iterator[str]:
    """Every text within a message, names of fields aside."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _marked(value: Any, spellings: Spellings, mark: str) -> Any:
    if isinstance(value, str):
        cuts = [0, *(place + 1 for place in sorted(spellings.starts(value))), len(value)]
        return mark.join(value[start:end] for start, end in pairwise(cuts))
    if isinstance(value, Mapping):
        return {name: _marked(each, spellings, mark) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(each, spellings, mark) for each in value]
    return value
