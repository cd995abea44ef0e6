"""The records that pass through learning: graded groups in, training samples out.

    accepted slot -> Entry (its RolloutGroups) -> Batch -> TrainingSample per rollout that carries a gradient

Shapes: G rollouts in a group, P prompt tokens, T completion tokens. Arrays are read-only by convention.
"""

from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from farflung.rl.staleness import StalenessHistogram, staleness
from farflung.wire.batch import SlotDrop
from farflung.wire.rollout import Rollout


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A part of a completion that the policy wrote and that has a reward of its own (`rl.turns`)."""

    start: int
    """First completion token."""
    end: int
    """Behind the last."""
    reward: float
    holes: tuple[tuple[int, int], ...] = ()
    """[start, end) of what lies in it but is not the policy's: where several turns are judged by one outcome."""

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """[start, end) of what the policy wrote."""
        bounds = [self.start, *chain.from_iterable(self.holes), self.end]
        return tuple(zip(bounds[::2], bounds[1::2], strict=True))

    @property
    def num_tokens(self) -> int:
        return sum(end - start for start, end in self.spans)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class RolloutGroup:
    """The G rollouts of one task, with the validators' grades. What the sampler claims about rewards is not in here.

    `Rollout.logprobs` are the behaviour logprobs. Where they are not taken from the sampler but from a validator's
    prefill, whoever builds the group replaces the array.
    """

    slot: int
    group: int
    """Position in the slot."""
    agent: int = 0
    """Of the episodes that these are rollouts of: agents are compared with their own kind."""
    task_id: str
    rollouts: tuple[Rollout, ...]
    rewards: tuple[float | None, ...]
    """[G] total rewards, which advantages are computed from; None = cannot be graded."""
    correct: tuple[float | None, ...]
    """[G] unshaped task rewards; None = the environment has none."""
    turns: tuple[tuple[Turn, ...], ...] | None = None
    """[G] turns of each rollout, in order; what lies between them is not the policy's. None = judged by outcome."""
    task_index: int | None = None
    """Of its task in the environment's training split; None where it is not known."""

    def __post_init__(self) -> None:
        counts = (len(self.rollouts), len(self.rewards), len(self.correct))
        if len(set(counts)) != 1 or not self.rollouts:
            raise ValueError(
                f"group {self.group} of slot {self.slot} has {counts[0]} rollouts, {counts[1]} rewards and {counts[2]} "
                "values of correct: there must be one of each per rollout, and at least one"
            )
        if len({rollout.policy_version for rollout in self.rollouts}) != 1:
            raise ValueError(f"group {self.group} of slot {self.slot} mixes policy versions: a slot has exactly one")
        if self.turns is not None:
            for rollout, turns in zip(self.rollouts, self.turns, strict=True):
                _require_turns(turns, len(rollout.completion_tokens))

    @property
    def policy_version(self) -> int:
        """The version that sampled every rollout of the group."""
        return self.rollouts[0].policy_version

    @property
    def num_completion_tokens(self) -> int:
        return sum(len(rollout.completion_tokens) for rollout in self.rollouts)


def _require_turns(turns: tuple[Turn, ...], num_tokens: int) -> None:
    spans = [span for turn in turns for span in turn.spans]
    bounds = [0, *chain.from_iterable(spans), num_tokens]
    if any(after < before for before, after in pairwise(bounds)) or any(end <= start for start, end in spans):
        raise ValueError(
            f"turns {spans} of a completion of {num_tokens} tokens: they must be "
            "in order, apart, inside it, and none empty"
        )


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Entry:
    """One accepted slot in the buffer; it is taken whole."""

    slot: int
    policy_version: int
    groups: tuple[RolloutGroup, ...]
    num_tokens: int
    """Completion tokens of all groups."""
    node: str

    def __post_init__(self) -> None:
        if not self.groups:
            raise ValueError(f"slot {self.slot} has no groups: an accepted slot has at least one")
        for group in self.groups:
            if (group.slot, group.policy_version) != (self.slot, self.policy_version):
                raise ValueError(
                    f"slot {self.slot} of version {self.policy_version} holds a group of slot {group.slot}, "
                    f"version {group.policy_version}: all must agree"
                )


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Batch:
    """What the trainer took for one policy version; given back with `release` or `discard` under its id."""

    batch_id: int
    policy_version: int
    """The trainer's version at the moment of taking; the batch makes the next one."""
    entries: tuple[Entry, ...]
    """In slot order."""
    drops: tuple[SlotDrop, ...]
    """Accepted slots that were given up since the batch before, for the batch record."""

    @property
    def groups(self) -> tuple[RolloutGroup, ...]:
        return tuple(chain.from_iterable(entry.groups for entry in self.entries))

    @property
    def slots(self) -> tuple[int, ...]:
        return tuple(entry.slot for entry in self.entries)

    @property
    def num_groups(self) -> int:
        return sum(len(entry.groups) for entry in self.entries)

    @property
    def num_tokens(self) -> int:
        return sum(entry.num_tokens for entry in self.entries)

    @property
    def staleness(self) -> StalenessHistogram:
        """Of its rollouts, at the moment of taking."""
        histogram = StalenessHistogram()
        for group in self.groups:
            histogram.add(staleness(self.policy_version, group.policy_version), len(group.rollouts))
        return histogram


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class TrainingSample:
    """One rollout as the learner sees it."""

    tokens: NDArray[np.int32]
    """[P + T] prompt, then completion."""
    num_prompt_tokens: int
    """P >= 1: the first completion token needs a position that predicts it."""
    behaviour_logprobs: NDArray[np.float32]
    """[T] of the policy that sampled, at the sampling temperature."""
    advantages: NDArray[np.float32]
    """[T] of each completion token; all equal where an outcome is judged, not its parts."""
    loss_mask: NDArray[np.bool_]
    """[T] True where a token may be learned from."""
    policy_version: int
    slot: int
    group: int
    sample: int
    group_log_expectation: float | None = None
    """Of its group, for GEPO (`rl.expectation`)."""
    ref_logprobs: NDArray[np.float32] | None = None
    """[T] of the reference policy of a KL term, at the sampling temperature; None without one."""

    def __post_init__(self) -> None:
        num_completion = len(self.tokens) - self.num_prompt_tokens
        if self.num_prompt_tokens < 1 or num_completion < 1:
            raise ValueError(
                f"{len(self.tokens)} tokens with {self.num_prompt_tokens} of prompt: prompt and completion need one"
            )
        counts = (len(self.behaviour_logprobs), len(self.advantages), len(self.loss_mask))
        if counts != (num_completion,) * 3:
            raise ValueError(
                f"{num_completion} completion tokens, {counts[0]} behaviour logprobs, {counts[1]} advantages and "
                f"{counts[2]} mask values: they must pair up"
            )
        if self.ref_logprobs is not None and len(self.ref_logprobs) != num_completion:
            raise ValueError(
                f"{num_completion} completion tokens and {len(self.ref_logprobs)} reference logprobs: they must pair up"
            )

    @property
    def key(self) -> tuple[int, int, int]:
        """(slot, group, sample): no two samples of a batch have the same."""
        return self.slot, self.group, self.sample

    @property
    def num_completion_tokens(self) -> int:
        return len(self.tokens) - self.num_prompt_tokens

    @property
    def num_forward_tokens(self) -> int:
        """Positions that a forward pass computes: the last token predicts nothing that is needed."""
        return len(self.tokens) - 1

    @property
    def num_loss_tokens(self) -> int:
        return int(np.count_nonzero(self.loss_mask))
