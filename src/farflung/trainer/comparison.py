"""From the rollouts of one task, with what validators say about each, to the groups that are compared with each other.

An agent of an episode is compared with the same agent of the other episodes. What a rollout's spans leave out is not
the policy's: it carries no advantage and no loss. An episode judged by its outcome is one turn with holes, so that all
that an agent said in it has one advantage. Pure; does not know files or leases.
"""

from collections.abc import Sequence
from itertools import pairwise

from farflung.rl.types import RolloutGroup, Turn
from farflung.wire.rollout import Rollout
from farflung.wire.verdict import RewardResult


def comparison_groups(
    slot: int,
    rollouts: Sequence[Rollout],
    results: Sequence[RewardResult],
    *,
    num_agents: int,
    task_index: int | None,
) -> tuple[RolloutGroup, ...]:
    """One group per agent. `rollouts` are those of one task in order of samples, `results` pair up with them.

    Raises:
        ValueError: spans do not fit their completions.
    """
    return tuple(
        RolloutGroup(
            slot=slot,
            group=rollouts[0].group,
            agent=agent,
            task_id=rollouts[0].task_id,
            rollouts=tuple(rollouts[agent::num_agents]),
            rewards=tuple(result.reward for result in results[agent::num_agents]),
            correct=tuple(result.correct for result in results[agent::num_agents]),
            turns=_turns(rollouts[agent::num_agents], results[agent::num_agents]),
            task_index=task_index,
        )
        for agent in range(num_agents)
    )


def do_spans_fit(rollout: Rollout, result: RewardResult) -> bool:
    """Whether the turns lie inside the completion."""
    return not result.spans or result.spans[-1][1] <= len(rollout.completion_tokens)


def _turns(rollouts: Sequence[Rollout], results: Sequence[RewardResult]) -> tuple[tuple[Turn, ...], ...] | None:
    """None where no rollout has spans: each is one turn, from its first token to its last."""
    if not any(result.spans for result in results):
        return None
    return tuple(_turns_of(rollout, result) for rollout, result in zip(rollouts, results, strict=True))


def _turns_of(rollout: Rollout, result: RewardResult) -> tuple[Turn, ...]:
    reward = result.reward
    if reward is None:
        return ()
    spans = result.spans or ((0, len(rollout.completion_tokens)),)
    if result.turn_rewards:
        return tuple(
            Turn(start=start, end=end, reward=own) for (start, end), own in zip(spans, result.turn_rewards, strict=True)
        )
    holes = tuple((before[1], after[0]) for before, after in pairwise(spans) if before[1] < after[0])
    return (Turn(start=spans[0][0], end=spans[-1][1], reward=reward, holes=holes),)
