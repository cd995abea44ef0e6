"""A tokenizer for prompts in which a message spells a special token: there it is text, and only there.

The library can treat all special tokens as text. So a second tokenizer of the same file does, and gets for each special
token another, ordinary one, with a name of noncharacters, which stands where the template writes the special token. All
else stays as it is, so that a prompt in which nothing is spelled has the same ids by either way.
"""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken

from farflung.errors import UserError
from farflung.model.said import Rendered, Spellings

_OPEN, _CLOSE = "\ufdee", "\ufdef"


class LiteralTokenizer:
    """
    Args:
        fast: a tokenizer of the library, this object's own from now on.
        special: id -> special token.
    """

    def __init__(self, fast: Any, special: Mapping[int, str], spellings: Spellings) -> None:
        added = fast.get_added_tokens_decoder()
        self._names = {token: f"{_OPEN}{token_id}{_CLOSE}" for token_id, token in special.items()}
        fast.encode_special_tokens = True
        fast.add_tokens(
            [
                AddedToken(
                    self._names[token],
                    single_word=added[token_id].single_word,
                    lstrip=added[token_id].lstrip,
                    rstrip=added[token_id].rstrip,
                    normalized=False,
                    special=False,
                )
                for token_id, token in special.items()
            ]
        )
        self._special = special.keys()
        self._meant = {
            fast.token_to_id(name): token_id for token_id, name in zip(special, self._names.values(), strict=True)
        }
        self._spellings = spellings
        self.fast = fast

    def rename(self, rendered: Rendered) -> str:
        """The text with other names for the special tokens that nobody said. Raises `UserError` for those names."""
        text = rendered.text
        if _OPEN in text:
            raise UserError(f"the text contains the noncharacter {_OPEN!r} beside a special token")
        parts, end = list[str](), 0
        for place, token in self._spellings.places(text):
            if place >= end and place not in rendered.said:
                parts += [text[end:place], self._names[token]]
                end = place + len(token)
        return "".join([*parts, text[end:]])

    def meant(self, ids: list[int]) -> list[int]:
        """Ids of the vocabulary. Raises `UserError` where text alone makes a special token."""
        if not self._special.isdisjoint(ids):
            raise UserError("a message spells a special token that this tokenizer cannot write as text")
        return [self._meant.get(token_id, token_id) for token_id in ids]
