"""How a thinking budget is told in a prompt, in training and in serving alike: a model keeps what it was trained with.

    user      after the last user message, as INTELLECT-2 (arXiv 2505.07291)
    start     before the first message
    system    at the end of the system message, or as one

What was told can be taken away again. Does not know which budgets there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from farflung.errors import UserError
from farflung.wire.task import Message

Where = Literal["user", "start", "system"]
TARGET = "{target}"
TOLD = " Think for {target} tokens before giving a response."


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetPrompt:
    """Raises `UserError`: the text does not have its target in it, once."""

    told: str = TOLD
    where: Where = "user"

    def __post_init__(self) -> None:
        if self.told.count(TARGET) != 1:
            raise UserError(f"a budget is told as {self.told!r}: the text has to have {TARGET} in it, once")

    def text(self, target: int) -> str:
        return self.told.replace(TARGET, str(target))

    def tell(self, messages: Sequence[Message], target: int) -> tuple[Message, ...]:
        """`messages` is not empty."""
        text = self.text(target)
        if self.where == "system" and messages[0].role != "system":
            return (Message(role="system", content=text.strip()), *messages)
        place = self._place(messages)
        content = messages[place].content
        return _put(messages, place, text + content if self.where == "start" else content + text)

    def take_away(self, messages: Sequence[Message], target: int) -> tuple[Message, ...]:
        """What `tell` was given."""
        text = self.text(target)
        if self.where == "system" and messages[0] == Message(role="system", content=text.strip()):
            return tuple(messages[1:])
        place = self._place(messages)
        content = messages[place].content
        return _put(
            messages, place, content.removeprefix(text) if self.where == "start" else content.removesuffix(text)
        )

    def _place(self, messages: Sequence[Message]) -> int:
        if self.where != "user":
            return 0
        users = [number for number, message in enumerate(messages) if message.role == "user"]
        return users[-1] if users else len(messages) - 1


def _put(messages: Sequence[Message], place: int, content: str) -> tuple[Message, ...]:
    return (*messages[:place], replace(messages[place], content=content), *messages[place + 1 :])
