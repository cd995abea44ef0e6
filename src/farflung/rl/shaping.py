"""Rewards as advantages see them: the environment's, then a length reward, then a soft overlong punishment.

    R  = R_env
    R' = R + weight * (length_reward(R) - R)        tasks that ask for a length (`rl.length_reward`)
    R" = R' + overlong_penalty(length)              `rl.overlong`

Whether a group has signal is judged before all of this on what the environment calls correct (`rl.signal`), or, where
length is an objective (`judged_on` "total"), on R'. Never on R": a punishment merely shapes. It falls on the last turn
of a rollout, where there are turns. What is no reward (None, nan) stays none.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite

from farflung.rl.checks import require
from farflung.rl.length_reward import ALPHA, LengthReward, length_reward
from farflung.rl.overlong import overlong_penalty
from farflung.rl.types import RolloutGroup, Turn
from farflung.wire.rollout import Rollout


@dataclass(frozen=True, kw_only=True, slots=True)
class ShapingParams:
    """Off by default."""

    length: LengthReward | None = None
    alpha: float = ALPHA
    weight: float = 1.0
    """Share of the length reward's effect."""
    overlong_buffer_tokens: int = 0
    """0 = no punishment."""
    overlong_factor: float = 1.0
    max_length_tokens: int = 1

    def __post_init__(self) -> None:
        require(0 < self.weight <= 1, f"the weight of the length reward is {self.weight}: it must be in (0, 1]")
        require(
            0 <= self.overlong_buffer_tokens <= self.max_length_tokens,
            f"overlong_buffer_tokens is {self.overlong_buffer_tokens} with a limit of {self.max_length_tokens} tokens: "
            "it must be in 0 (no punishment) to that",
        )

    @property
    def is_on(self) -> bool:
        return self.length is not None or self.overlong_buffer_tokens > 0


NO_SHAPING = ShapingParams()


def with_length_reward(group: RolloutGroup, params: ShapingParams) -> RolloutGroup:
    """R'. Rollouts of a task that asks for no length keep their reward."""
    kind = params.length
    if kind is None:
        return group

    def total(rollout: Rollout, reward: float) -> float:
        if not rollout.target_length:
            return reward
        num_tokens = len(rollout.completion_tokens)
        aimed = length_reward(
            reward, num_tokens=num_tokens, target_tokens=rollout.target_length, kind=kind, alpha=params.alpha
        )
        return reward + params.weight * (aimed - reward)

    return _mapped(group, total)


def with_overlong_penalty(group: RolloutGroup, params: ShapingParams) -> RolloutGroup:
    """R" of a group that has R'."""
    if not params.overlong_buffer_tokens:
        return group

    def total(rollout: Rollout, reward: float) -> float:
        return reward + overlong_penalty(
            len(rollout.completion_tokens),
            max_length_tokens=params.max_length_tokens,
            buffer_tokens=params.overlong_buffer_tokens,
            factor=params.overlong_factor,
        )

    return _mapped(group, total)


def _mapped(group: RolloutGroup, total: Callable[[Rollout, float], float]) -> RolloutGroup:
    rewards = tuple(
        reward if reward is None or not isfinite(reward) else total(rollout, reward)
        for rollout, reward in zip(group.rollouts, group.rewards, strict=True)
    )
    return replace(group, rewards=rewards, turns=_moved(group, rewards))


def _moved(group: RolloutGroup, rewards: tuple[float | None, ...]) -> tuple[tuple[Turn, ...], ...] | None:
    """Turns of which the last takes what was added to the rollout."""
    if group.turns is None:
        return None
    changes = [
        0.0 if before is None or after is None or not isfinite(before) else after - before
        for before, after in zip(group.rewards, rewards, strict=True)
    ]
    return tuple(
        (*turns[:-1], replace(turns[-1], reward=turns[-1].reward + change)) if turns else turns
        for turns, change in zip(group.turns, changes, strict=True)
    )
