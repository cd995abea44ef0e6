"""REINFORCE++ (OpenRLHF): no group baseline; returns are whitened over all tokens of the step.

    x_it = R_i - beta * sum_{s >= t} m_is k1_is              returns, with KL to a reference (beta usually 0)
    x_it = R_i - mean(R) - beta * sum_{s >= t} m_is k1_is    the "baseline" variant: the group's mean is taken first
    A_it = (x_it - mean) / (std + eps)                       over the loss tokens of the whole step (`rl.whiten`)

Works with groups of one, unlike the estimators that compare within a group; the baseline variant does not.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from farflung.rl.advantage import batch_advantages
from farflung.rl.whiten import Moments, whiten


def returns_with_kl(
    reward: float | NDArray[np.floating], k1_T: NDArray[np.floating], mask_T: NDArray[np.bool_], *, beta: float
) -> NDArray[np.float64]:
    """[T] return at each token of one rollout.

    Args:
        reward: of the rollout, or [T] of what is still to come at each token.
        k1_T: pi - ref of the sampled tokens; what stands at masked positions (tool output) plays no part.
    """
    penalty_T = np.where(mask_T, k1_T, 0.0).astype(np.float64)
    to_go_T = np.cumsum(penalty_T[::-1])[::-1]
    return reward - beta * to_go_T


def whitened_returns(
    returns: Sequence[NDArray[np.floating]], masks: Sequence[NDArray[np.bool_]]
) -> list[NDArray[np.float64]]:
    """Advantages [T] of every rollout of the step from its returns [T], over the tokens that the masks [T] select."""
    moments = sum(map(Moments.of, returns, masks), Moments(count=0, mean=0.0, squares=0.0))
    return [whiten(returns_T, mask_T, moments) for returns_T, mask_T in zip(returns, masks, strict=True)]


def reinforce_pp_advantages(
    groups: Sequence[Sequence[float | None]], num_loss_tokens: Sequence[Sequence[int]], *, has_baseline: bool
) -> list[NDArray[np.float64]]:
    """Advantages [G] of every group, in order, without KL, so that they are equal at all tokens of a rollout.

    Args:
        num_loss_tokens: of each rollout: how often it counts in mean and std.

    Raises:
        ValueError: a group of one with `has_baseline`.
    """
    if not groups:
        return []
    scores = [np.array([np.nan if reward is None else reward for reward in rewards], float) for rewards in groups]
    returns = batch_advantages(groups, normalize="none") if has_baseline else scores
    is_graded = np.isfinite(np.concatenate(scores))
    flat = np.concatenate(returns)
    counts = np.where(is_graded, np.concatenate([np.asarray(counts) for counts in num_loss_tokens]), 0)
    per_token = np.repeat(flat, counts)
    moments = Moments.of(per_token, np.ones(len(per_token), dtype=np.bool_))
    whitened = whiten(flat, is_graded, moments)
    return np.split(whitened, np.cumsum([len(rewards) for rewards in groups])[:-1])
