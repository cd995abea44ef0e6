"""Learning from the tokens where the policy chose: the share with the highest entropy (arXiv 2506.01939).

    tau  = quantile(H_t over loss tokens of the whole step, 1 - share)
    A_t <- A_t if H_t >= tau else 0

The forks of a chain of thought are few; at share 0.2 the paper learns as much as from all. What is no loss token
(padding, tool output) has no say in tau. Entropies are those of the policy when the version began, so the choice does
not depend on how the step is cut. N of the loss stays, as do KL and entropy terms, which look at no advantage.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from farflung.rl.types import TrainingSample


def entropy_threshold(
    entropies: Sequence[NDArray[np.floating]], masks: Sequence[NDArray[np.bool_]], share: float
) -> float:
    """tau, over what the masks select.

    Raises:
        ValueError: a share that is not in (0, 1], or nothing selected.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}: it must be above 0 and at most 1")
    selected = [entropy_T[mask_T].astype(np.float64) for entropy_T, mask_T in zip(entropies, masks, strict=True)]
    if not sum(map(len, selected)):
        raise ValueError("no loss token: there is no quantile of nothing")
    return float(np.quantile(np.concatenate(selected), 1 - share))


def keep_top_entropy(
    samples: Sequence[TrainingSample], entropies: Sequence[NDArray[np.floating]], share: float
) -> list[TrainingSample]:
    """Samples whose advantages are 0 where the entropy [T] is low. Raises as `entropy_threshold`."""
    tau = entropy_threshold(entropies, [sample.loss_mask for sample in samples], share)
    return [
        replace(sample, advantages=np.where(entropy_T >= tau, sample.advantages, np.float32(0)))
        for sample, entropy_T in zip(samples, entropies, strict=True)
    ]
