"""Figures of a batch for each part of the pool's tasks, such as the members of a mixture, under the part's name."""

from collections.abc import Sequence

from farflung.rl.types import RolloutGroup
from farflung.trainer.curriculum import stratum_finder
from farflung.trainer.samples import group_rewards
from farflung.wire.pool import Stratum


def member_metrics(groups: Sequence[RolloutGroup], strata: tuple[Stratum, ...]) -> dict[str, float]:
    """Of each stratum that has groups in the batch; nothing where the pool has no strata.

    `solve_rate` is the share of groups in which at least one rollout was right.
    """
    if not strata:
        return {}
    stratum_of = stratum_finder(strata)
    by_stratum: dict[int, list[RolloutGroup]] = {}
    for group in groups:
        if group.task_index is not None:
            by_stratum.setdefault(stratum_of(group.task_index), []).append(group)
    metrics: dict[str, float] = {}
    for number, mine in sorted(by_stratum.items()):
        name = strata[number].name
        rewards, correct = group_rewards(mine)
        metrics[f"groups/{name}"] = float(len(mine))
        if rewards:
            metrics[f"reward/{name}/mean"] = sum(rewards) / len(rewards)
        if correct:
            metrics[f"correct/{name}/mean"] = sum(correct) / len(correct)
            solved = [any(value is not None and value >= 1 for value in group.correct) for group in mine]
            metrics[f"solve_rate/{name}"] = sum(solved) / len(solved)
    return metrics
