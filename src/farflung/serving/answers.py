"""What goes back: objects and stream chunks of the OpenAI API."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from farflung.engine.live import LiveToken
from farflung.model.tokenizer import Tokenizer
from farflung.wire.rollout import StopReason

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """What one step added to a choice."""

    index: int
    text: str
    tokens: tuple[LiveToken, ...]
    finish_reason: FinishReason | None


def finish_reason(token: LiveToken, *, is_stopped: bool) -> FinishReason | None:
    """OpenAI's word for how a completion ended; None while it goes on."""
    if is_stopped or token.stop_reason is StopReason.EOS:
        return "stop"
    return None if token.stop_reason is None else "length"


class Shape:
    """Builds the answers of one request.

    Args:
        is_chat: chat completions; else plain completions.
    """

    def __init__(self, model: str, tokenizer: Tokenizer, *, is_chat: bool, with_logprobs: bool) -> None:
        self._tokenizer, self.is_chat, self._with_logprobs = tokenizer, is_chat, with_logprobs
        self._head = {
            "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, choices: Sequence[Sequence[Piece]], usage: dict[str, int]) -> dict[str, Any]:
        """The answer at once."""
        kind = "chat.completion" if self.is_chat else "text_completion"
        return {**self._head, "object": kind, "choices": [self._choice(pieces) for pieces in choices], "usage": usage}

    def opening(self, index: int) -> dict[str, Any]:
        """The first chunk of a chat choice: whose turn it is."""
        return self._chunk([{"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """A piece as a stream chunk."""
        choice: dict[str, Any] = {"index": piece.index, "finish_reason": piece.finish_reason}
        if self.is_chat:
            choice["delta"] = {"content": piece.text} if piece.text else {}
        else:
            choice["text"] = piece.text
        if self._with_logprobs:
            choice["logprobs"] = self._logprobs(piece.tokens)
        return self._chunk([choice])

    def closing(self, usage: dict[str, int]) -> dict[str, Any]:
        """The chunk with the usage, where it was asked for."""
        return self._chunk([]) | {"usage": usage}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.is_chat else "text_completion"
        return {**self._head, "object": kind, "choices": choices}

    def _choice(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        text = "".join(piece.text for piece in pieces)
        choice: dict[str, Any] = {"index": pieces[0].index, "finish_reason": pieces[-1].finish_reason, "logprobs": None}
        if self.is_chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        if self._with_logprobs:
            choice["logprobs"] = self._logprobs([token for piece in pieces for token in piece.tokens])
        return choice

    def _logprobs(self, tokens: Sequence[LiveToken]) -> dict[str, Any]:
        if not self.is_chat:
            return {
                "tokens": [self._text(token.token) for token in tokens],
                "token_logprobs": [token.logprob for token in tokens],
                "top_logprobs": [{self._text(other): logprob for other, logprob in token.top} for token in tokens],
            }
        return {
            "content": [
                {
                    **self._entry(token.token, token.logprob),
                    "top_logprobs": [self._entry(other, logprob) for other, logprob in token.top],
                }
                for token in tokens
            ],
            "refusal": None,
        }

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        text = self._text(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    def _text(self, token: int) -> str:
        return self._tokenizer.decode([token], skip_special=False)


def usage(num_prompt: int, num_completion: int) -> dict[str, int]:
    """Counts of tokens."""
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_completion,
        "total_tokens": num_prompt + num_completion,
    }
