"""The expectation of a group under the policy that sampled it, which GEPO divides by (arXiv 2508.17850).

    q_i = exp(mean_t mu_it)                 geometric mean probability of rollout i under the sampler
    E   = sum_i q_i^2 / sum_i q_i           over the rollouts of the group

E is a mean of the q_i, weighted by themselves, so one rollout that its sampler found unlikely cannot blow a weight up.
It is a constant of the data: computed once, before a step is cut into micro-batches, over which a group may be spread.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def group_log_expectation(mean_logprobs: Sequence[float]) -> float:
    """log E, from each rollout's mean behaviour logprob.

    >>> float(np.exp(group_log_expectation(np.log([0.5, 0.25]))).round(6))
    0.416667

    Raises:
        ValueError: no rollouts.
    """
    if not len(mean_logprobs):
        raise ValueError("no rollouts: a group has at least one")
    log_q_G = np.asarray(mean_logprobs, dtype=np.float64)
    return _logsumexp(2 * log_q_G) - _logsumexp(log_q_G)


def _logsumexp(values_G: NDArray[np.float64]) -> float:
    largest = values_G.max()
    return float(largest + np.log(np.exp(values_G - largest).sum()))
