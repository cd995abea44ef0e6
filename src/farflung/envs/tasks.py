"""What every task has: a name, a single user message, an index and a budget that its environment offers.

This module does not know any environment.
"""

from collections.abc import Sequence

from farflung.envs.base import Split
from farflung.wire.task import Message, Task


def single_turn(
    *, env: str, split: Split, index: int, prompt: str, answer: str, target_length: int = 0, offered: Sequence[int] = ()
) -> Task:
    """The task that asks `prompt` once.

    Raises:
        ValueError: a `target_length` that is neither 0 nor offered.
    """
    if target_length and target_length not in offered:
        choices = (
            f"one of {', '.join(map(str, offered))}, or 0 for none" if offered else "0, since there are no budgets"
        )
        raise ValueError(f"target length {target_length} of a task of {env}: it must be {choices}")
    return Task(
        env=env,
        task_id=f"{split}/{index}",
        messages=(Message(role="user", content=prompt),),
        answer=answer,
        target_length=target_length,
    )


def check_index(split: Split, index: int, size: int) -> None:
    """Raises `IndexError` unless `index` lies in a split of `size` tasks; negative ones do not count from the end."""
    if not 0 <= index < size:
        raise IndexError(f"task {index} of the {split} split: it has {size}, counted from 0")
