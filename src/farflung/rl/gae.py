"""Generalised advantage estimation, arXiv 1506.02438: per-token advantages from a critic's values.

    d_t      = r_t + gamma * V_{t+1} - V_t
    A_t      = d_t + gamma * lam * A_{t+1}
    return_t = A_t + V_t

t + 1 is the next token *with mask*: those without (tool output, padding) are passed over, their rewards and values
play no part, their results are 0. After the last token V and A are 0. Whiten over the step afterwards (`rl.whiten`).
"""

import numpy as np
from numpy.typing import NDArray


def gae(
    rewards_BT: NDArray[np.floating],
    values_BT: NDArray[np.floating],
    mask_BT: NDArray[np.bool_],
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(advantages_BT, returns_BT) of B rollouts, padded with masked positions to T tokens.

    Raises:
        ValueError: shapes that differ, or gamma or lam outside [0, 1].
    """
    if not (rewards_BT.ndim == 2 and rewards_BT.shape == values_BT.shape == mask_BT.shape):
        raise ValueError(f"shapes {rewards_BT.shape}, {values_BT.shape}, {mask_BT.shape}: all must be [B, T] alike")
    if not (0 <= gamma <= 1 and 0 <= lam <= 1):
        raise ValueError(f"gamma is {gamma} and lam {lam}: both must be in [0, 1]")
    advantages_BT = np.zeros(rewards_BT.shape)
    next_value_B, next_advantage_B = np.zeros(len(rewards_BT)), np.zeros(len(rewards_BT))
    for t in reversed(range(rewards_BT.shape[1])):
        mask_B = mask_BT[:, t]
        delta_B = rewards_BT[:, t] + gamma * next_value_B - values_BT[:, t]
        next_advantage_B = np.where(mask_B, delta_B + gamma * lam * next_advantage_B, next_advantage_B)
        next_value_B = np.where(mask_B, values_BT[:, t], next_value_B)
        advantages_BT[:, t] = np.where(mask_B, next_advantage_B, 0.0)
    return advantages_BT, np.where(mask_BT, advantages_BT + values_BT, 0.0)
