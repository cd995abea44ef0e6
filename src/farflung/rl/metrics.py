"""Combining an objective's metrics over micro-batches and ranks without bias.

Every micro-batch reports sums over its loss tokens, maxima and minima; the names say which: `sum/x`, `max/x`, `min/x`.
Dividing happens once, at the end, by the tokens of the whole step, so a micro-batch with few tokens weighs little.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

NUM_TOKENS = "sum/num_tokens"
LOSS = "sum/policy_loss"
MEAN_WEIGHT = "sampling/importance_sampling_ratio/mean"
SQUARED_WEIGHT = "sampling/importance_sampling_ratio/squared_mean"
EFFECTIVE_SHARE = "sampling/importance_sampling_ratio/effective_share"
"""Effective sample size / tokens, (sum w)^2 / (n sum w^2): 1 where all weights are equal."""


def token_sum(values_N: Tensor, mask_N: Tensor) -> Tensor:
    """Sum over the selected tokens. Selects, since 0 * nan is nan."""
    return torch.where(mask_N, values_N, 0).sum()


def token_max(values_N: Tensor, mask_N: Tensor) -> Tensor:
    return torch.where(mask_N, values_N, -torch.inf).amax()


def token_min(values_N: Tensor, mask_N: Tensor) -> Tensor:
    return torch.where(mask_N, values_N, torch.inf).amin()


def combine_metrics(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    """Add, maximise or minimise each name over the parts; names stay, so the result can be combined again.

    Raises:
        ValueError: no parts, or parts with different names.
    """
    if not parts or any(part.keys() != parts[0].keys() for part in parts):
        raise ValueError(f"{len(parts)} parts of metrics: there must be at least one, all with the same names")
    names = list(parts[0])
    # One transfer from the device for all values.
    values_PK = torch.stack([torch.stack([part[name].double() for name in names]) for part in parts]).cpu()
    kinds = {"sum": values_PK.sum(0), "max": values_PK.amax(0), "min": values_PK.amin(0)}
    return {name: float(kinds[name.split("/")[0]][column]) for column, name in enumerate(names)}


def reduce_metrics(parts: Sequence[Mapping[str, Tensor]], num_steps: int = 1) -> dict[str, float]:
    """Metrics of an optimizer step, or of several, from those of the micro-batches and ranks.

    `sum/x` becomes the mean over loss tokens, named `x`, except the loss, which is divided already, and the number of
    tokens; `max/x` and `min/x` become `x`.

    Args:
        num_steps: optimizer steps behind the parts; the loss is the mean over them.

    Raises:
        ValueError: no parts, parts with different names, or no loss token in any.
    """
    combined = combine_metrics(parts)
    num_tokens = combined[NUM_TOKENS]
    if num_tokens < 1:
        raise ValueError("no loss token in the whole step: there is nothing to average over")
    if LOSS in combined:
        combined[LOSS] /= num_steps
    reduced = {
        name.split("/", 1)[1]: value if _is_final(name) else value / num_tokens for name, value in combined.items()
    }
    if squared := reduced.pop(SQUARED_WEIGHT, 0.0):
        reduced[EFFECTIVE_SHARE] = reduced[MEAN_WEIGHT] ** 2 / squared
    return reduced


def _is_final(name: str) -> bool:
    return name in (NUM_TOKENS, LOSS) or not name.startswith("sum/")
