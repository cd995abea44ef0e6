"""One completion of a request: what is asked of the engine, and for whom what comes is recorded.

Does not know HTTP or text.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from farflung.engine.live import LiveRequest, LiveToken
from farflung.serving.answers import Piece
from farflung.serving.recording import Prompt, Session

LEFT = "left"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of them."""

    prompt: Prompt
    live: LiveRequest
    session: Session | None

    @contextmanager
    def heard(self) -> Iterator["Heard"]:
        """Take what comes; what was drawn is recorded also where the client goes away."""
        heard = Heard(self)
        try:
            yield heard
        finally:
            heard.record(LEFT)


class Heard:
    """Pieces of one choice so far."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._tokens: list[LiveToken] = []
        self._text = ""
        self._is_recorded = False

    def add(self, piece: Piece) -> None:
        """The last piece records all."""
        self._tokens += piece.tokens
        self._text += piece.text
        if piece.finish_reason is not None:
            self.record(piece.finish_reason)

    def record(self, ending: str) -> None:
        """Once, and only where somebody wants it and something was drawn."""
        session = self._choice.session
        if session is None or self._is_recorded or not self._tokens:
            return
        self._is_recorded = True
        session.said(self._choice.prompt, self._tokens, self._text, ending)
