"""What a verdict is a function of: the rules of the pool, the validator's own knowledge of the slot, and the claim."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from farflung.wire.lease import Lease
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout import Rollout
from farflung.wire.submission import Submission


@dataclass(frozen=True, kw_only=True)
class JudgeRules:
    """The pool's rules and the token ids that its tokenizer gives a meaning to."""

    pool: PoolSpec
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    reserved_token_ids: tuple[int, ...] = ()
    """Never drawn, so never in a completion."""

    def __post_init__(self) -> None:
        if not self.eos_token_ids or not set(self.eos_token_ids) <= set(range(self.vocab_size)):
            raise ValueError(f"eos ids {self.eos_token_ids}: at least one, each in [0, {self.vocab_size})")
        if set(self.eos_token_ids) & set(self.reserved_token_ids):
            raise ValueError(f"eos ids {self.eos_token_ids} overlap reserved ids {self.reserved_token_ids}")

    @cached_property
    def pool_digest(self) -> str:
        return self.pool.digest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """What a replay of an episode says about one of its rows."""

    spans: tuple[tuple[int, int], ...]
    """[start, end) of each turn of the model in the completion; empty = not known, as the environment could not say."""
    problem: str = ""
    """Why the environment would not have played so; empty = it would have."""


ReadEpisodes = Callable[[Sequence[Rollout]], Sequence[Transcript]]
"""One transcript per rollout and in their order. Called once, with rollouts that passed every check before."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SlotEvidence:
    """What the validator built by itself from the lease's task indices, one entry per group."""

    env: str
    task_ids: tuple[str, ...]
    prompt_tokens: tuple[NDArray[np.int32], ...]
    """Canonical prompts, [L] ids each; of agent 0, where there are several."""
    target_lengths: tuple[int, ...] | None = None
    """What the tasks ask for, where that may differ from the lease: a task may offer no budget. None = as leased."""
    read_episodes: ReadEpisodes | None = None
    """None = every completion is one turn, drawn from its first token to its last."""

    def __post_init__(self) -> None:
        if len(self.task_ids) != len(self.prompt_tokens):
            raise ValueError(f"{len(self.task_ids)} task ids but {len(self.prompt_tokens)} prompts")
        if self.target_lengths is not None and len(self.target_lengths) != len(self.task_ids):
            raise ValueError(f"{len(self.task_ids)} task ids but {len(self.target_lengths)} target lengths")


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A claim that could be read, beside everything that it has to agree with."""

    submission: Submission
    lease: Lease
    rollouts: Sequence[Rollout]
    rules: JudgeRules
    evidence: SlotEvidence
    current_version: int
    """The newest policy version that the validator knows."""

    @property
    def is_episodic(self) -> bool:
        return self.evidence.read_episodes is not None

    @cached_property
    def transcripts(self) -> Sequence[Transcript]:
        """One per rollout; asked for when all that a replay relies on is checked."""
        if self.evidence.read_episodes is None:
            return [Transcript(spans=((0, len(rollout.completion_tokens)),)) for rollout in self.rollouts]
        return self.evidence.read_episodes(self.rollouts)

    @cached_property
    def drawn(self) -> Sequence[NDArray[np.bool_]]:
        """[T] of each rollout: which of its tokens the model drew; all of them where that is not known."""
        masks = []
        for rollout, transcript in zip(self.rollouts, self.transcripts, strict=True):
            mask_T = np.full(len(rollout.completion_tokens), not transcript.spans)
            for start, end in transcript.spans:
                mask_T[start:end] = True
            masks.append(mask_T)
        return masks
