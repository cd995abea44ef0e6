"""Coefficients of an objective that change from version to version, and the state that they change by.

    objective of the settings  --apply(state)-->  objective of this version  --metrics-->  next state

The rules are `rl.adaptive`'s. The state belongs to a checkpoint; without targets it never changes.
"""

from collections.abc import Mapping

import msgspec

from farflung.rl.adaptive import (
    AdaptiveEntropy,
    AdaptiveKl,
    ObjectiveState,
    adapted_entropy,
    adapted_kl,
    entropy_weight,
)
from farflung.rl.objectives import Objective
from farflung.trainer.config import ObjectiveConfig

KL_METRIC = "kl"
ENTROPY_METRIC = "entropy"


class Adaptation:
    """Of one trainer; a component of its checkpoints."""

    def __init__(self, config: ObjectiveConfig) -> None:
        kl, entropy = config.kl, config.entropy
        self._kl = AdaptiveKl(target=kl.target, horizon=kl.horizon) if kl.coefficient and kl.target else None
        self._entropy = (
            AdaptiveEntropy(target=entropy.target, change=entropy.change, max_coefficient=entropy.max_coefficient)
            if entropy.target
            else None
        )
        self.state = ObjectiveState(kl_coefficient=kl.coefficient, entropy_coefficient=entropy.coefficient)

    @property
    def is_on(self) -> bool:
        """Whether anything ever changes."""
        return self._kl is not None or self._entropy is not None

    def apply(self, objective: Objective) -> Objective:
        """With the coefficients of this version."""
        state = self.state
        entropy = state.entropy_coefficient if self._entropy is None else entropy_weight(state, self._entropy)
        return objective.with_coefficients(kl=state.kl_coefficient, entropy=entropy)

    def after(self, metrics: Mapping[str, float], num_samples: int) -> ObjectiveState:
        """The state after a version with these metrics; it holds once the version is kept."""
        kl, entropy = metrics.get(KL_METRIC), metrics.get(ENTROPY_METRIC)
        before = self.state
        return ObjectiveState(
            kl_coefficient=before.kl_coefficient
            if self._kl is None or kl is None
            else adapted_kl(before.kl_coefficient, kl, num_samples, self._kl),
            entropy_coefficient=before.entropy_coefficient
            if self._entropy is None or entropy is None
            else adapted_entropy(before.entropy_coefficient, entropy, self._entropy),
            entropy=before.entropy if entropy is None else entropy,
        )

    def metrics(self) -> dict[str, float]:
        """Of the version that is about to be trained."""
        shown = {"kl_coefficient": self.state.kl_coefficient} if self._kl is not None else {}
        if self._entropy is not None:
            shown["entropy_coefficient"] = entropy_weight(self.state, self._entropy)
        return shown

    def snapshot(self) -> dict[str, object]:
        """As `trainer.checkpoint.Component`."""
        return dict(msgspec.to_builtins(self.state))

    def restore(self, snapshot: dict[str, object]) -> None:
        """Go on from a snapshot. Raises `ValueError` on one that it cannot read."""
        self.state = msgspec.convert(snapshot, ObjectiveState)
