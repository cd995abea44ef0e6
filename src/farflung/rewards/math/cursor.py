"""A position in a list of tokens, with the depth of nesting that the parsers share."""

from collections.abc import Iterator
from contextlib import contextmanager

from farflung.rewards.math.limits import MAX_DEPTH, CutShort, NotExact, OverLimits
from farflung.rewards.math.tokens import END, Token, TokenKind


class Cursor:
    """Reads tokens one after the other."""

    __slots__ = ("_depth", "_position", "_tokens")

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0

    def peek(self, ahead: int = 0) -> Token:
        """The token `ahead` of the next one, END past the last."""
        index = self._position + ahead
        return self._tokens[index] if index < len(self._tokens) else END

    def advance(self) -> Token:
        """Take the next token."""
        token = self.peek()
        self._position += 1
        return token

    def at(self, *texts: str) -> bool:
        """Whether the next token is one of these symbols or commands."""
        token = self.peek()
        return token.text in texts and token.kind in (TokenKind.SYMBOL, TokenKind.COMMAND)

    def take(self, *texts: str) -> bool:
        """Take the next token if it is one of these symbols or commands."""
        found = self.at(*texts)
        if found:
            self._position += 1
        return found

    def expect(self, *texts: str) -> Token:
        """Take one of these symbols or commands; raises NotExact if another token stands there."""
        if self.peek() is END:
            raise CutShort(f"the text ends before {' or '.join(texts)}")
        if not self.at(*texts):
            raise NotExact(f"expected {' or '.join(texts)}")
        return self.advance()

    def split(self, num_characters: int) -> Token:
        r"""Take the first characters of the next token and leave the rest, as `\frac12` needs."""
        token = self.peek()
        if len(token.text) <= num_characters:
            return self.advance()
        self._tokens[self._position] = token._replace(text=token.text[num_characters:], is_spaced=False)
        return token._replace(text=token.text[:num_characters])

    def split_index(self) -> Token:
        r"""Take the letter of a name such as `x2` and leave its number: `\frac x2` has two arguments."""
        token = self.peek()
        letter, _, index = token.text.partition("_")
        self._tokens[self._position] = Token(TokenKind.NUMBER, index, is_text=token.is_text)
        return token._replace(text=letter)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """One level deeper; raises OverLimits below the deepest."""
        self.check_depth(self._depth + 1)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def check_depth(self, depth: int) -> None:
        """Raises OverLimits for a tree that is deeper than allowed."""
        if depth > MAX_DEPTH:
            raise OverLimits("nested too deeply")
