"""How much better a rollout was than its group.

    none       A_i = R_i - mean(R)                                 Dr.GRPO, arXiv 2503.20783
    std        A_i = (R_i - mean(R)) / (std(R) + eps)              GRPO, arXiv 2402.03300
    batch_std  A_i = (R_i - mean(R)) / (std(batch) + eps)          ScaleRL, arXiv 2510.13786

mean and std (divided by G - 1) run over the group's graded rewards, std(batch) over those of all groups. A reward that
is None or not finite is no reward: it has no place in mean or std, and its rollout gets advantage 0 and no gradient.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Normalize = Literal["none", "std", "batch_std"]
STD_EPS = 1e-4
"""As TRL: small against the spread of rewards of order 1, large against the rounding of equal ones."""


def group_advantages(
    rewards: Sequence[float | None], *, normalize: Normalize = "none", eps: float = STD_EPS
) -> NDArray[np.float64]:
    """Advantages [G] of one group; `batch_std` has no meaning here.

    Raises:
        ValueError: a group of one, which is its own baseline, or an unknown name.
    """
    if normalize == "batch_std":
        raise ValueError("normalize is 'batch_std': one group has no batch, call batch_advantages with all groups")
    return batch_advantages([rewards], normalize=normalize, eps=eps)[0]


def batch_advantages(
    groups: Sequence[Sequence[float | None]], *, normalize: Normalize = "none", eps: float = STD_EPS
) -> list[NDArray[np.float64]]:
    """Advantages of every group of a batch, in order. Raises as `group_advantages`."""
    if normalize not in get_args(Normalize):
        raise ValueError(f"normalize is {normalize!r}: it must be one of {', '.join(get_args(Normalize))}")
    scores = [_scores(rewards) for rewards in groups]
    batch_std = _std(np.concatenate(scores)) if normalize == "batch_std" and scores else 0.0
    return [_centre(scores_G, normalize, batch_std, eps) for scores_G in scores]


def _scores(rewards: Sequence[float | None]) -> NDArray[np.float64]:
    """Rewards [G]; what is no reward is not finite."""
    if len(rewards) < 2:
        raise ValueError(
            f"a group of {len(rewards)} has no baseline, all its advantages would be 0: use a group size of at least 2"
        )
    return np.array([np.nan if reward is None else reward for reward in rewards], dtype=np.float64)


def _centre(scores_G: NDArray[np.float64], normalize: Normalize, batch_std: float, eps: float) -> NDArray[np.float64]:
    graded_G = np.isfinite(scores_G)
    if not graded_G.any():
        return np.zeros_like(scores_G)
    centred_G = np.where(graded_G, scores_G - scores_G[graded_G].mean(), 0.0)
    if normalize == "none":
        return centred_G
    std = batch_std if normalize == "batch_std" else _std(scores_G)
    return centred_G / (std + eps)


def _std(scores: NDArray[np.float64]) -> float:
    """Sample std over what is graded; 0 where fewer than two are."""
    graded = scores[np.isfinite(scores)]
    return float(graded.std(ddof=1)) if len(graded) > 1 else 0.0
