"""PPO's way to per-token advantages: from the values of a critic, whoever computes them.

    samples, values -> r_t = penalty at each loss token, the reward at the last  -> GAE (`rl.gae`)
                    -> returns, which the critic learns (`rl.value`)
                    -> advantages, whitened over the loss tokens of the step (`rl.whiten`)

The critic itself is not here. What it says is a judgement of states, not a distribution: no temperature divides it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from farflung.rl.gae import gae
from farflung.rl.reinforce_pp import whitened_returns
from farflung.rl.turns import Key
from farflung.rl.types import TrainingSample

NO_PENALTIES: Mapping[Key, NDArray[np.floating]] = {}


class Critic(Protocol):
    """Whatever values states."""

    def values(self, samples: Sequence[TrainingSample]) -> list[NDArray[np.float32]]:
        """[T] of each sample: what is still to be earned when completion token t is about to be drawn."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Estimates:
    """What policy and critic learn from."""

    samples: tuple[TrainingSample, ...]
    """With advantages of their own at each loss token, 0 elsewhere."""
    returns: tuple[NDArray[np.float32], ...]
    """[T] of each sample."""


def critic_estimates(
    samples: Sequence[TrainingSample],
    rewards: Sequence[float],
    values: Sequence[NDArray[np.floating]],
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    penalties: Mapping[Key, NDArray[np.floating]] = NO_PENALTIES,
) -> Estimates:
    """Advantages and returns of the samples of one optimizer step.

    Args:
        rewards: of each sample, paid at its last loss token.
        values: as `Critic.values`; what stands at masked tokens plays no part.
        penalties: as `rl.samples.training_samples`.

    Raises:
        ValueError: counts or lengths that differ, or gamma or lam outside [0, 1].
    """
    lengths = [sample.num_completion_tokens for sample in samples]
    if [len(each) for each in values] != lengths or len(rewards) != len(samples):
        raise ValueError(
            f"{len(samples)} samples of {lengths} tokens, {len(rewards)} rewards and values of "
            f"{[len(each) for each in values]}: there must be a reward per sample and a value per token"
        )
    if not samples:
        return Estimates(samples=(), returns=())
    mask_BT = _padded([sample.loss_mask for sample in samples]) > 0
    rewards_BT = -_padded(
        [penalties.get(sample.key, np.zeros(length)) for sample, length in zip(samples, lengths, strict=True)]
    )
    last_B = mask_BT.shape[1] - 1 - np.argmax(mask_BT[:, ::-1], axis=1)
    rewards_BT[np.arange(len(samples)), last_B] += rewards
    values_BT = np.where(mask_BT, _padded(values), 0.0)
    advantages_BT, returns_BT = gae(np.where(mask_BT, rewards_BT, 0.0), values_BT, mask_BT, gamma=gamma, lam=lam)
    raw = [advantages_BT[row, :length] for row, length in enumerate(lengths)]
    whitened = whitened_returns(raw, [sample.loss_mask for sample in samples])
    return Estimates(
        samples=tuple(
            replace(sample, advantages=each.astype(np.float32)) for sample, each in zip(samples, whitened, strict=True)
        ),
        returns=tuple(returns_BT[row, :length].astype(np.float32) for row, length in enumerate(lengths)),
    )


def _padded(rows: Sequence[NDArray[np.generic]]) -> NDArray[np.float64]:
    """[B, T] with zeros behind each row."""
    padded = np.zeros((len(rows), max(map(len, rows))))
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded
