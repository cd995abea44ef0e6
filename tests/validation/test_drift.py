"""Evidence over many submissions: an honest node is hardly ever pointed at, one just inside the limits soon is."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.validation.drift import BETS, FALSE_ALARM, LEAST_DISTANCE, ROOM, Drift, after, expectation
from farflung.wire.proof import DEFAULT_RULES, Expected

EXPECTED = Expected(distance=0.018, mean_margin=0.0015)


def watched(figures: list[tuple[float, float]], expected: Expected = EXPECTED) -> int | None:
    """After how many submissions there was an alarm."""
    drift = Drift()
    for distance, margin in figures:
        drift = after(drift, distance, margin, expected)
        if drift.is_alarm():
            return drift.num_submissions
    return None


def honest(count: int, seed: int = 0) -> list[tuple[float, float]]:
    """Honest bfloat16 beside float32, as measured: a narrow distance and a heavy-tailed margin."""
    generator = np.random.default_rng(seed)
    distances = generator.normal(0.0145, 0.0004, count)
    return list(zip(distances, generator.exponential(0.0004, count), strict=True))


def test_honest_nodes_are_never_pointed_at() -> None:
    assert all(watched(honest(400, seed)) is None for seed in range(30))


def test_w17_states_just_inside_the_limit_are_found_within_twenty_submissions() -> None:
    limit = 0.98 * DEFAULT_RULES.reject.activation_submission
    found = watched([(limit, margin) for _, margin in honest(20)])
    assert found is not None


def test_w17_steering_just_inside_the_mean_margin_is_found_within_ten_submissions() -> None:
    limit = 0.98 * DEFAULT_RULES.reject.mean_margin
    assert watched([(distance, limit) for distance, _ in honest(10)]) is not None


def test_w17_one_that_was_honest_for_long_is_found_hardly_later() -> None:
    limit = 0.98 * DEFAULT_RULES.reject.activation_submission
    long_honest = honest(1000)
    found = watched([*long_honest, *((limit, margin) for _, margin in honest(40, 1))])
    assert found is not None
    assert found > len(long_honest)


@pytest.mark.parametrize("allowed", [0.5, 0.1])
def test_the_rate_of_false_alarms_is_the_one_that_is_stated(allowed: float) -> None:
    """On figures whose fourth power has exactly the mean that is expected: rarely very large ones, the worst case."""
    generator = np.random.default_rng(3)
    alarms, nodes = 0, 300
    for _ in range(nodes):
        drift = Drift()
        for is_large in generator.random((80, 2)) < 0.05:
            distance, margin = is_large * 20 ** (1 / 4)
            drift = after(drift, distance * EXPECTED.distance, margin * EXPECTED.mean_margin, EXPECTED)
        alarms += drift.is_alarm(allowed)
    assert alarms / nodes <= allowed


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=8))
def test_evidence_is_the_sum_of_products_that_it_claims_to_be(ratios: list[tuple[float, float]]) -> None:
    drift = Drift()
    for distance, margin in ratios:
        drift = after(drift, distance**0.25 * EXPECTED.distance, margin**0.25 * EXPECTED.mean_margin, EXPECTED)
    plain = []
    for figure in (0, 1):
        for bet in BETS:
            factors = [1 - bet + bet * pair[figure] for pair in ratios]
            starts = range(len(factors))
            plain.append(sum(math.prod(factors[start:]) / ((start + 1) * (start + 2)) for start in starts))
    assert np.exp(drift.logs) == pytest.approx(plain, rel=1e-6)
    assert drift.peak >= math.log(np.mean(plain)) - 1e-9


def test_an_alarm_stays() -> None:
    drift = after(Drift(), 1.0, 0.0, EXPECTED)
    assert drift.is_alarm()
    for _ in range(50):
        drift = after(drift, 0.0, 0.0, EXPECTED)
    assert drift.is_alarm()
    assert drift.num_submissions == 51


def test_what_is_expected_is_the_worst_honest_kind_with_room() -> None:
    found = expectation([[(0.0, 0.0)] * 4, [(0.014, 0.001)] * 4])
    assert found.distance == pytest.approx(ROOM * 0.014)
    assert found.mean_margin == pytest.approx(ROOM * 0.001)
    assert expectation([[(0.0, 0.0)]]).distance == LEAST_DISTANCE
    with pytest.raises(ValueError, match="no honest"):
        expectation([[], [(0.1, 0.1)]])


def test_the_shipped_rules_say_what_is_expected() -> None:
    assert DEFAULT_RULES.expected is not None
    assert watched(honest(300), DEFAULT_RULES.expected) is None
    assert FALSE_ALARM <= 1e-6
