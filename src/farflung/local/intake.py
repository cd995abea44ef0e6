"""From a sampler's message to graded groups."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from farflung.local.messages import Sampled
from farflung.rl.types import RolloutGroup
from farflung.trainer.comparison import comparison_groups
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout import Rollout


def groups_of(
    sampled: Sampled, pool: PoolSpec, *, policy_version: int, task_indices: Sequence[int]
) -> tuple[RolloutGroup, ...]:
    """The groups of a slot, in order; `task_indices` are those of its lease."""
    rollouts = list(_rollouts(sampled, policy_version))
    size = pool.rollouts_per_group
    return tuple(
        group
        for task_index, start in zip(task_indices, range(0, len(rollouts), size), strict=True)
        for group in comparison_groups(
            sampled.slot,
            rollouts[start : start + size],
            sampled.results[start : start + size],
            num_agents=pool.environment.num_agents,
            task_index=task_index,
        )
    )


def _rollouts(sampled: Sampled, policy_version: int) -> Iterator[Rollout]:
    # Copies, because torch warns of arrays that cannot be written to.
    tokens = np.frombuffer(sampled.tokens, dtype=np.int32).copy()
    logprobs = np.frombuffer(sampled.logprobs, dtype=np.float32).copy()
    ends = np.concatenate([[0], np.cumsum(sampled.lengths)]).tolist()
    for position, (start, end) in enumerate(pairwise(ends)):
        result = sampled.results[position]
        yield Rollout(
            env=sampled.env,
            task_id=sampled.task_ids[result.group],
            group=result.group,
            sample=result.sample,
            prompt_tokens=np.frombuffer(sampled.prompts[position], dtype=np.int32).copy(),
            completion_tokens=tokens[start:end],
            logprobs=logprobs[start:end],
            stop_reason=sampled.stop_reasons[position],
            policy_version=policy_version,
            target_length=sampled.target_lengths[result.group],
        )
