"""From a sampler's message to graded groups."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from farflung.local.messages import Sampled
from farflung.rl.types import RolloutGroup
from farflung.wire.rollout import Rollout


def groups_of(
    sampled: Sampled, *, policy_version: int, group_size: int, task_indices: Sequence[int]
) -> tuple[RolloutGroup, ...]:
    """The groups of a slot, in order; `task_indices` are those of its lease."""
    rollouts = list(_rollouts(sampled, policy_version, group_size))
    return tuple(
        RolloutGroup(
            slot=sampled.slot,
            group=group,
            task_id=task_id,
            rollouts=tuple(rollouts[start : start + group_size]),
            rewards=sampled.rewards[start : start + group_size],
            correct=sampled.correct[start : start + group_size],
            task_index=task_indices[group],
        )
        for group, (task_id, start) in enumerate(
            zip(sampled.task_ids, range(0, len(rollouts), group_size), strict=True)
        )
    )


def _rollouts(sampled: Sampled, policy_version: int, group_size: int) -> Iterator[Rollout]:
    # Copies, because torch warns of arrays that cannot be written to.
    prompts = [np.frombuffer(prompt, dtype=np.int32).copy() for prompt in sampled.prompts]
    tokens = np.frombuffer(sampled.tokens, dtype=np.int32).copy()
    logprobs = np.frombuffer(sampled.logprobs, dtype=np.float32).copy()
    ends = np.concatenate([[0], np.cumsum(sampled.lengths)]).tolist()
    for position, (start, end) in enumerate(pairwise(ends)):
        group, sample = divmod(position, group_size)
        yield Rollout(
            env=sampled.env,
            task_id=sampled.task_ids[group],
            group=group,
            sample=sample,
            prompt_tokens=prompts[group],
            completion_tokens=tokens[start:end],
            logprobs=logprobs[start:end],
            stop_reason=sampled.stop_reasons[position],
            policy_version=policy_version,
            target_length=sampled.target_lengths[group],
        )
