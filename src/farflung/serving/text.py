"""Tokens of one completion -> text as it grows, cut at the first stop string.

A piece is handed out only when later tokens cannot change it: bytes of an unfinished character wait, and so does text
that may be the beginning of a stop string. Does not know requests or sockets.
"""

from collections.abc import Callable, Sequence

REPLACEMENT = "�"
"""What decoders put where bytes do not make a character (yet)."""


class TextStream:
    """Feed ids, get text.

    Args:
        decode: ids -> text without special tokens.
        stop: strings that end the completion and are not part of it.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str] = ()) -> None:
        self._decode, self._stop = decode, [text for text in stop if text]
        self._ids: list[int] = []
        # Ids before `_start` are done; text of `_start.._read` is known. Decoding from `_start` keeps the spaces that
        # some tokenizers write between neighbours.
        self._start, self._read = 0, 0
        self._held = ""
        self.is_stopped = False
        """A stop string has come: nothing follows."""

    def add(self, token: int) -> str:
        """The text that is now certain; often empty."""
        if self.is_stopped:
            return ""
        self._ids.append(token)
        known = self._decode(self._ids[self._start : self._read])
        text = self._decode(self._ids[self._start :])
        if text.endswith(REPLACEMENT):
            return ""
        self._start, self._read = self._read, len(self._ids)
        return self._release(text[len(known) :])

    def end(self) -> str:
        """What was held back, when no token follows."""
        if self.is_stopped:
            return ""
        known = self._decode(self._ids[self._start : self._read])
        rest = self._release(self._decode(self._ids[self._start :])[len(known) :])
        held, self._held = self._held, ""
        return rest + held

    def _release(self, piece: str) -> str:
        text = self._held + piece
        found = [position for stop in self._stop if (position := text.find(stop)) >= 0]
        if found:
            self.is_stopped, self._held = True, ""
            return text[: min(found)]
        kept = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
