"""What a harness is told of a task, and what it says of its attempt. Does not know servers or processes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from farflung.wire.task import Task


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One try at one task."""

    task: Task
    sample: int
    base_url: str
    api_key: str
    """Its own: what is asked with it belongs to this attempt."""
    model: str

    def as_json(self) -> str:
        """Everything but the key; the reference answer too, for harnesses that grade."""
        table: dict[str, Any] = {
            "task_id": self.task.task_id,
            "sample": self.sample,
            "messages": [{"role": each.role, "content": each.content} for each in self.task.messages],
            "answer": self.task.answer,
            "model": self.model,
        }
        return json.dumps(table)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What the harness made of it."""

    reward: float | None = None
    """None = it did not say."""
    correct: float | None = None
    problem: str = ""
    """Why there is no outcome, in words."""


Harness: TypeAlias = Callable[[Attempt], Awaitable[Outcome]]


def in_thread(solve: Callable[[Attempt], float | None]) -> Harness:
    """A plain function, which gives the reward or None, as a harness; what it raises is the attempt's problem."""

    async def harness(attempt: Attempt) -> Outcome:
        try:
            return Outcome(reward=await asyncio.to_thread(solve, attempt))
        except Exception as error:  # noqa: BLE001 - the boundary to the user's code
            return Outcome(problem=f"{type(error).__name__}: {error}"[:500])

    return harness
