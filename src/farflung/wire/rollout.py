"""One sampled attempt at a task. Lives in memory as this record, on disk as a row of `wire.rollout_file`."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class StopReason(StrEnum):
    """Why sampling ended."""

    EOS = "eos"
    """An end-of-sequence id was drawn; it is the last completion token."""
    LENGTH = "length"
    """`max_completion_tokens` was reached."""
    STOP = "stop"
    """A stop string or the environment ended it."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Rollout:
    """Arrays are one-dimensional and read-only by convention; `T` is the number of completion tokens."""

    env: str
    task_id: str
    group: int
    """Position of the task in the slot."""
    sample: int
    """Position of the rollout in its group: episode * agents + agent."""
    prompt_tokens: NDArray[np.int32]
    completion_tokens: NDArray[np.int32]
    """[T] ids, end-of-sequence ids included. In episodes of several turns also what lies between the turns."""
    logprobs: NDArray[np.float32]
    """[T] the engine's own, float32 log-softmax at the sampling temperature; 0.0 at tokens that nobody drew."""
    stop_reason: StopReason
    policy_version: int
    target_length: int = 0
    claimed_reward: float = 0.0
    """Diagnostic only, never trained on."""
    proof: bytes = b""
    """Activation chunks (DESIGN section 5); empty in open pools."""

    def __post_init__(self) -> None:
        if len(self.completion_tokens) != len(self.logprobs):
            raise ValueError(
                f"{len(self.completion_tokens)} completion tokens but {len(self.logprobs)} logprobs: they must pair up"
            )
