"""Rewards for keeping to a length that the prompt asks for (L1, arXiv 2503.04697; INTELLECT-2, 2505.07291).

    exact   task - alpha * |target - length|
    max     task * clip(alpha * (target - length) + 0.5, 0, 1)
    clip    task if length <= target, else 0

alpha 0.0003 per token, as INTELLECT-2. Groups are then judged for signal on the total (`rl.signal`), because the
length is an objective itself.
"""

from typing import Literal, get_args

LengthReward = Literal["exact", "max", "clip"]
ALPHA = 0.0003


def length_reward(
    task_reward: float, *, num_tokens: int, target_tokens: int, kind: LengthReward, alpha: float = ALPHA
) -> float:
    """Total reward.

    >>> length_reward(1.0, num_tokens=3000, target_tokens=2000, kind="max")
    0.2

    Raises:
        ValueError: an unknown kind, or a target below 1 or alpha not above 0.
    """
    if kind not in get_args(LengthReward):
        raise ValueError(f"kind is {kind!r}: it must be one of {', '.join(get_args(LengthReward))}")
    if target_tokens < 1 or not alpha > 0:
        raise ValueError(f"target_tokens is {target_tokens} and alpha {alpha}: at least 1, and above 0")
    short_by = target_tokens - num_tokens
    if kind == "exact":
        return task_reward - alpha * abs(short_by)
    if kind == "max":
        return task_reward * min(max(alpha * short_by + 0.5, 0.0), 1.0)
    return task_reward if short_by >= 0 else 0.0
