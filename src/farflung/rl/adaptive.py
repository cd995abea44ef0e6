"""Coefficients that follow what they control, from one policy version to the next. Pure: state in, state out.

    KL        c <- c * (1 + clip(kl / target - 1, -0.2, 0.2) * n / horizon)        n samples; PPO, arXiv 1707.06347
    entropy   c <- clip(c + change if entropy <= target else c - change, 0, max)   Skywork-OR1, arXiv 2505.22312
              the bonus weighs c while entropy <= target, else nothing

Each is measured on the tokens that a version was trained on and decides about the next: no pass is made for it.
"""

from dataclasses import dataclass

from farflung.rl.checks import require

MAX_ERROR = 0.2
"""Largest relative distance from the target that counts, as verl."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectiveState:
    """What an objective remembers from version to version; part of a checkpoint."""

    kl_coefficient: float = 0.0
    entropy_coefficient: float = 0.0
    entropy: float | None = None
    """Nats per token at the last version that was trained; None before the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptiveKl:
    target: float
    """Nats per token, as the estimator measures them."""
    horizon: int = 10_000
    """Samples over which a KL of 1.2 times the target raises the coefficient by a fifth. As verl."""

    def __post_init__(self) -> None:
        require(self.target > 0, f"the KL target is {self.target}: it must be above 0")
        require(self.horizon >= 1, f"the KL horizon is {self.horizon}: it must be at least 1 sample")


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptiveEntropy:
    target: float
    """Nats per token."""
    change: float = 0.005
    """Of the coefficient per version, as Skywork-OR1."""
    max_coefficient: float = 1.0

    def __post_init__(self) -> None:
        require(self.target > 0, f"the entropy target is {self.target}: it must be above 0 nats per token")
        require(
            0 < self.change <= self.max_coefficient,
            f"the entropy coefficient changes by {self.change} up to {self.max_coefficient}: the change must be above "
            "0 and at most that",
        )


def adapted_kl(coefficient: float, kl: float, num_samples: int, params: AdaptiveKl) -> float:
    """The next coefficient.

    >>> adapted_kl(0.1, 0.3, 1000, AdaptiveKl(target=0.1))  # three times the target counts as 1.2 times
    0.10200000000000001
    """
    error = min(max(kl / params.target - 1, -MAX_ERROR), MAX_ERROR)
    return coefficient * (1 + error * num_samples / params.horizon)


def adapted_entropy(coefficient: float, entropy: float, params: AdaptiveEntropy) -> float:
    """The next coefficient.

    >>> adapted_entropy(0.01, 0.15, AdaptiveEntropy(target=0.2))
    0.015
    """
    change = params.change if entropy <= params.target else -params.change
    return min(max(coefficient + change, 0.0), params.max_coefficient)


def entropy_weight(state: ObjectiveState, params: AdaptiveEntropy) -> float:
    """What the bonus weighs now: nothing before there is a measurement, or while there is entropy enough."""
    is_low = state.entropy is not None and state.entropy <= params.target
    return state.entropy_coefficient if is_low else 0.0
