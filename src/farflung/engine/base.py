"""What every engine offers: groups of completions from prompts, drawn with public randomness.

An engine does not know tasks, rewards, leases or files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from farflung.model.adapter_files import Adapter
from farflung.model.weights_update import Changed
from farflung.wire.rollout import StopReason


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How completions are drawn. There is no top-p and no top-k, so that the learner's ratio is unbiased."""

    temperature: float = 1.0
    """0 = greedy (evaluation only)."""
    max_completion_tokens: int
    eos_token_ids: tuple[int, ...]
    """Each of them ends a completion and is its last token."""
    reserved_token_ids: tuple[int, ...] = ()
    """Never drawn; masked identically in engine, trainer and verifier."""

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature is {self.temperature}: it must be >= 0")
        if self.max_completion_tokens < 1:
            raise ValueError(f"max_completion_tokens is {self.max_completion_tokens}: it must be >= 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRequest:
    """`num_samples` completions of one prompt. `(group, sample, position)` with the draw seed fix every draw.

    A later turn of a conversation is a request of one sample whose prompt is all that came before, which goes on where
    the draws of its turn before and the tokens between the two have left off.
    """

    group: int
    prompt_tokens: NDArray[np.int32]
    num_samples: int
    first_sample: int = 0
    sample_stride: int = 1
    """Samples are `first_sample`, `first_sample + sample_stride`, ..."""
    first_position: int = 0
    """Of the first token drawn, in the draws of its sample."""
    max_tokens: int = 0
    """Most tokens to draw; 0 = `SamplingParams.max_completion_tokens`, which it may not exceed."""

    @property
    def samples(self) -> range:
        return range(self.first_sample, self.first_sample + self.num_samples * self.sample_stride, self.sample_stride)

    def limit(self, params: SamplingParams) -> int:
        """Most tokens of each completion."""
        return self.max_tokens or params.max_completion_tokens


def in_order(requests: Sequence[GroupRequest]) -> list[GroupRequest]:
    """By group, then by first sample.

    Raises:
        ValueError: a sample is requested twice.
    """
    ordered = sorted(requests, key=lambda request: (request.group, request.first_sample))
    samples_of: dict[int, list[int]] = {}
    for request in ordered:
        samples_of.setdefault(request.group, []).extend(request.samples)
    for group, samples in samples_of.items():
        if len(set(samples)) < len(samples):
            raise ValueError(f"a sample of group {group} is requested twice: its draws would be the same")
    return ordered


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Completion:
    """One sampled completion of T tokens."""

    group: int
    sample: int
    tokens: NDArray[np.int32]
    """[T] with the end-of-sequence id, if one was drawn."""
    logprobs: NDArray[np.float32]
    """[T] float32 log-softmax of logits / temperature over the unreserved vocabulary."""
    stop_reason: StopReason
    hidden: NDArray[np.float32] | None = None
    """[T, d] post-final-norm states that predicted each token, when asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineStats:
    """Totals of an engine's life, for heartbeats."""

    num_tokens: int
    """Completion tokens drawn."""
    busy_s: float
    """Wall time inside `generate`."""


class Cancelled(Exception):
    """`generate` was told to stop; nothing of the call is kept."""


class StateSink(Protocol):
    """Takes states while they are made, so that they need not be kept (`proofs.commitments`)."""

    def add(self, group: int, sample: int, states_TD: Tensor) -> None:
        """[T, d] post-final-norm states that predicted the next T tokens of this completion, in order.

        The tensor may be a part of a larger one that is not changed afterwards.
        """
        ...


class Engine(Protocol):
    """Synchronous; the caller decides which thread it runs on."""

    def generate(
        self,
        requests: Sequence[GroupRequest],
        params: SamplingParams,
        draw_seed: bytes,
        *,
        with_hidden: bool = False,
        sink: StateSink | None = None,
    ) -> list[Completion]:
        """Sample every group to its end; ordered by (group, sample).

        The tokens depend on the request, the weights, the params and the seed, not on what else is in the batch.

        Args:
            with_hidden: keep every state, for `Completion.hidden`.
            sink: is given every state on the way.

        Raises:
            ValueError: a prompt is empty, has ids out of range, or does not fit; a sample comes twice.
        """
        ...

    def load_weights(self, state: Mapping[str, Tensor], policy_version: int) -> None:
        """Replace all weights (Hugging Face names) and every cache that came from the old ones.

        Called between `generate` calls, so a completion has one version.
        """
        ...

    def update_weights(self, state: Mapping[str, Tensor], changed: Changed, policy_version: int) -> None:
        """As `load_weights`, when the loaded weights differ from `state` in nothing but what `changed` names."""
        ...

    def load_adapter(self, adapter: Adapter, policy_version: int) -> None:
        """Compute with an adapter beside the loaded weights, which stay; one that was there before goes.

        Called between `generate` calls, as `load_weights`, which takes the adapter away.
        """
        ...

    @property
    def policy_version(self) -> int:
        """Version of the loaded weights; -1 before the first load."""
        ...
