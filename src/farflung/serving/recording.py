"""What a client with a key of its own was told, as the tokens that were drawn: conversations that only grow.

    request 1   messages [s, u]            -> prompt ids, answer a as drawn
    request 2   messages [s, u, a, u2]     -> goes on from the ids of request 1: a is never decoded and encoded again
    request 3   messages [s, u]            -> a conversation of its own

A request goes on from the recorded answer whose messages and text it begins with, the longest there is. It starts anew,
encoded as any other, where the client changed what was said, where a stop string cut it, and where the chat template
shows earlier turns otherwise. This module does not know sockets or rewards.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from farflung.engine.live import LiveToken
from farflung.model.conversation import Conversation
from farflung.model.tokenizer import Tokenizer

Messages: TypeAlias = tuple[Mapping[str, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """Where an answer begins."""

    ids: tuple[int, ...]
    messages: Messages
    """Empty for a plain completion, which nothing goes on from."""
    parent: "Answer | None" = None
    """The answer that it goes on from."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Answer:
    """One completion as drawn."""

    prompt: Prompt
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """At the temperature that the request named."""
    text: str
    """As the client got it."""
    ending: str
    """`stop`, `length`, or `left` where the client went away."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """One conversation: a prompt, and all that followed."""

    prompt_tokens: list[int]
    completion_tokens: list[int]
    """Answers as drawn, and what was said between them."""
    spans: list[tuple[int, int]]
    """[start, end) of each answer in the completion; the last one ends it."""
    logprobs: list[float]
    """[drawn tokens]"""
    ending: str


@dataclass(eq=False)
class Session:
    """Of one key.

    Args:
        seed: of the draws of requests that name none.
    """

    tokenizer: Tokenizer
    seed: str = field(default_factory=lambda: secrets.token_hex(16))
    answers: list[Answer] = field(default_factory=list)
    """In the order in which they ended."""
    num_requests: int = 0

    def next_seed(self) -> int:
        """A client that asks the same in the same order is answered the same."""
        self.num_requests += 1
        digest = hashlib.sha256(f"farflung/harness/1/{self.seed}/{self.num_requests}".encode()).digest()
        return int.from_bytes(digest[:7], "big")

    def chat(self, messages: Messages) -> Prompt:
        """Raises `UserError`: the template refuses the messages."""
        parents = [each for each in self.answers if self._goes_on(each, messages)]
        for parent in sorted(parents, key=lambda each: len(each.prompt.messages), reverse=True):
            conversation = self._conversation(parent)
            conversation.say(messages[len(parent.prompt.messages) + 1 :])
            if not conversation.num_forks:
                return Prompt(ids=tuple(conversation.ids), messages=messages, parent=parent)
        return Prompt(ids=tuple(Conversation(self.tokenizer, messages).ids), messages=messages)

    def said(self, prompt: Prompt, tokens: Sequence[LiveToken], text: str, ending: str) -> None:
        """An answer has ended."""
        self.answers.append(
            Answer(
                prompt=prompt,
                tokens=tuple(each.token for each in tokens),
                logprobs=tuple(each.logprob for each in tokens),
                text=text,
                ending=ending,
            )
        )

    def conversations(self) -> list[Recorded]:
        """Each to its end; one that was gone on from in two ways is there twice."""
        continued = {id(each.prompt.parent) for each in self.answers}
        return [_recorded(each) for each in self.answers if id(each) not in continued]

    def _goes_on(self, answer: Answer, messages: Messages) -> bool:
        before = answer.prompt.messages
        if not before or len(messages) < len(before) + 2 or messages[: len(before)] != before:
            return False
        is_whole = answer.text == self.tokenizer.decode(answer.tokens)
        return is_whole and messages[len(before)] == {"role": "assistant", "content": answer.text}

    def _conversation(self, answer: Answer) -> Conversation:
        """Up to the end of the answer."""
        parent = answer.prompt.parent
        if parent is None:
            conversation = Conversation(self.tokenizer, answer.prompt.messages)
        else:
            conversation = self._conversation(parent)
            conversation.say(answer.prompt.messages[len(parent.prompt.messages) + 1 :])
        conversation.answer(answer.tokens)
        return conversation


class Recorder:
    """Sessions by key."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._sessions: dict[str, Session] = {}

    def open(self, seed: str = "") -> str:
        """A new key; with a `seed`, draws that can be repeated."""
        key = f"farflung-{secrets.token_urlsafe(24)}"
        self._sessions[key] = Session(self._tokenizer, seed) if seed else Session(self._tokenizer)
        return key

    def of(self, key: str) -> Session | None:
        """None for a key that is not open."""
        return self._sessions.get(key)

    def close(self, key: str) -> Session:
        """What the key's client was told; the key is worth nothing from now on."""
        return self._sessions.pop(key)


def as_json(recorded: Recorded) -> dict[str, Any]:
    """Of plain types."""
    return {name: getattr(recorded, name) for name in Recorded.__slots__}


def _recorded(answer: Answer) -> Recorded:
    chain = [answer]
    while (parent := chain[0].prompt.parent) is not None:
        chain.insert(0, parent)
    num_prompt = len(chain[0].prompt.ids)
    starts = [len(each.prompt.ids) - num_prompt for each in chain]
    return Recorded(
        prompt_tokens=list(chain[0].prompt.ids),
        completion_tokens=[*answer.prompt.ids[num_prompt:], *answer.tokens],
        spans=[(start, start + len(each.tokens)) for start, each in zip(starts, chain, strict=True)],
        logprobs=[logprob for each in chain for logprob in each.logprobs],
        ending=answer.ending,
    )
