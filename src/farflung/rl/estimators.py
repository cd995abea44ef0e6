"""Advantage estimators by name.

    none, std, batch_std                  `rl.advantage`: Dr.GRPO, GRPO, ScaleRL
    rloo                                  `rl.rloo`
    reinforce_pp, reinforce_pp_baseline   `rl.reinforce_pp`

Per-token advantages from a critic are `rl.gae`.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from farflung.rl.advantage import STD_EPS, Normalize, batch_advantages
from farflung.rl.checks import require_name
from farflung.rl.reinforce_pp import reinforce_pp_advantages
from farflung.rl.rloo import rloo_advantages

Estimator = Literal["none", "std", "batch_std", "rloo", "reinforce_pp", "reinforce_pp_baseline"]
_NORMALIZATIONS: dict[str, Normalize] = {name: name for name in get_args(Normalize)}


def estimate_advantages(
    groups: Sequence[Sequence[float | None]],
    num_loss_tokens: Sequence[Sequence[int]],
    estimator: Estimator,
    *,
    eps: float = STD_EPS,
) -> list[NDArray[np.float64]]:
    """Advantages [G] of every group of the step, in order.

    Args:
        groups: [G] rewards each; None = no reward, advantage 0.
        num_loss_tokens: of each rollout, for what is whitened over tokens.
        eps: added to the std of "std" and "batch_std".

    Raises:
        ValueError: an unknown name, or a group of one where the estimator compares within groups.
    """
    require_name("advantage estimator", estimator, get_args(Estimator))
    if estimator in _NORMALIZATIONS:
        return batch_advantages(groups, normalize=_NORMALIZATIONS[estimator], eps=eps)
    if estimator == "rloo":
        return rloo_advantages(groups)
    has_baseline = estimator == "reinforce_pp_baseline"
    return reinforce_pp_advantages(groups, num_loss_tokens, has_baseline=has_baseline)
