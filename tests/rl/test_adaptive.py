from typing import Any

import pytest

from farflung.rl.adaptive import (
    AdaptiveEntropy,
    AdaptiveKl,
    ObjectiveState,
    adapted_entropy,
    adapted_kl,
    entropy_weight,
)

KL = AdaptiveKl(target=0.1, horizon=1000)
ENTROPY = AdaptiveEntropy(target=0.2, change=0.005, max_coefficient=0.02)


@pytest.mark.parametrize(
    ("kl", "factor"),
    [(0.1, 1.0), (0.11, 1 + 0.1 * 0.5), (0.5, 1 + 0.2 * 0.5), (0.05, 1 - 0.2 * 0.5), (0.0, 1 - 0.2 * 0.5)],
)
def test_the_kl_coefficient_follows_its_target_by_at_most_a_fifth_of_the_horizon(kl: float, factor: float) -> None:
    assert adapted_kl(0.01, kl, 500, KL) == pytest.approx(0.01 * factor)


@pytest.mark.parametrize(
    ("coefficient", "entropy", "expected"),
    [(0.01, 0.15, 0.015), (0.01, 0.2, 0.015), (0.01, 0.3, 0.005), (0.002, 0.3, 0.0), (0.018, 0.1, 0.02)],
)
def test_the_entropy_coefficient_rises_while_entropy_is_low(
    coefficient: float, entropy: float, expected: float
) -> None:
    assert adapted_entropy(coefficient, entropy, ENTROPY) == pytest.approx(expected)


@pytest.mark.parametrize(("entropy", "weight"), [(None, 0.0), (0.1, 0.01), (0.2, 0.01), (0.21, 0.0)])
def test_the_bonus_counts_only_while_entropy_is_known_to_be_low(entropy: float | None, weight: float) -> None:
    assert entropy_weight(ObjectiveState(entropy_coefficient=0.01, entropy=entropy), ENTROPY) == weight


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdaptiveKl(target=0.0), "target is 0.0: it must be above 0"),
        (lambda: AdaptiveKl(target=1.0, horizon=0), "at least 1 sample"),
        (lambda: AdaptiveEntropy(target=-1.0), "target is -1.0"),
        (lambda: AdaptiveEntropy(target=1.0, change=2.0), "changes by 2.0 up to 1.0"),
    ],
)
def test_targets_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
