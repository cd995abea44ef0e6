"""RLOO, arXiv 2402.14740: every rollout's baseline is the mean of the *others* of its group.

    A_i = R_i - mean_{j != i}(R_j) = G / (G - 1) * (R_i - mean(R))

Unbiased, since the baseline does not depend on the rollout. G counts graded rollouts; one alone has advantage 0.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from farflung.rl.advantage import batch_advantages


def rloo_advantages(groups: Sequence[Sequence[float | None]]) -> list[NDArray[np.float64]]:
    """Advantages [G] of every group, in order; 0 for a rollout without reward.

    Raises:
        ValueError: a group of one.
    """
    centred = batch_advantages(groups, normalize="none")
    return [_leave_one_out(centred_G, rewards) for centred_G, rewards in zip(centred, groups, strict=True)]


def _leave_one_out(centred_G: NDArray[np.float64], rewards: Sequence[float | None]) -> NDArray[np.float64]:
    num_graded = sum(reward is not None and bool(np.isfinite(reward)) for reward in rewards)
    return centred_G * (num_graded / (num_graded - 1)) if num_graded > 1 else centred_G
