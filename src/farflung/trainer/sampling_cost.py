"""What a batch cost in sampling: groups that were sampled for it and groups that it is learned from.

    cost_ratio = groups sampled / groups used        1 = every group taught something; all of them where none did

With `trainer.batch_counts` "signal" the ratio says how much more was sampled than a batch holds. Slots that went stale
before they were used are not in it; the drops of the run count them.
"""

from farflung.rl.types import Batch, RolloutGroup
from farflung.trainer.samples import Selection


def sampling_metrics(batch: Batch, selection: Selection) -> dict[str, float]:
    """Of a batch with at least one group."""
    used = {_key(group) for group in selection.groups}
    wasted_tokens = sum(group.num_completion_tokens for group in batch.groups if _key(group) not in used)
    return {
        "sampling/groups_sampled": float(batch.num_groups),
        "sampling/groups_used": float(len(used)),
        "sampling/cost_ratio": batch.num_groups / max(len(used), 1),
        "sampling/tokens_without_signal": float(wasted_tokens),
    }


def _key(group: RolloutGroup) -> tuple[int, int, int]:
    return group.slot, group.group, group.agent
