"""One problem of an environment, as prompt messages and the reference that the grader needs."""

from typing import Literal

from farflung.wire.canonical import Record


class Message(Record, frozen=True, kw_only=True):
    role: Literal["system", "user", "assistant"]
    content: str


class Task(Record, frozen=True, kw_only=True):
    """`answer` is the grader's reference and never part of the prompt."""

    env: str
    task_id: str
    messages: tuple[Message, ...]
    answer: str
    target_length: int = 0
    """Thinking budget told in the prompt; 0 = none."""
