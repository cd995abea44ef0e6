"""One problem of an environment, as prompt messages and the reference that the grader needs."""

from typing import Literal

from farflung.wire.canonical import Record
from farflung.wire.invariants import require_counts, require_names


class Message(Record, frozen=True, kw_only=True):
    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Task(Record, frozen=True, kw_only=True):
    """`answer` is the grader's reference and never part of the prompt."""

    env: str
    task_id: str
    messages: tuple[Message, ...]
    answer: str
    target_length: int = 0
    """Thinking budget told in the prompt; 0 = none."""

    def __post_init__(self) -> None:
        require_names(env=self.env, task_id=self.task_id)
        require_counts(target_length=self.target_length)
