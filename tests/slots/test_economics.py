"""The rate at which cheating loses money, against its definition."""

import pytest

from farflung.slots.economics import items_until_caught, least_rate


def loses_money(rate: float, stake: float, reward: float, window: int) -> bool:
    """Cheating any number of a window's submissions saves less than it loses on average."""
    loss = stake + window * reward
    return all(k < (1 - (1 - rate) ** k) * loss for k in range(1, window + 1))


@pytest.mark.parametrize(
    ("stake", "reward", "window"), [(100, 1.0, 100), (10, 1.0, 100), (1000, 1.0, 10), (0, 2.0, 50)]
)
def test_just_above_the_rate_no_number_of_bad_submissions_pays_and_below_some_does(
    stake: float, reward: float, window: int
) -> None:
    rate = least_rate(stake, reward=reward, window=window, detection=1.0)
    assert loses_money(rate * 1.001, stake, reward, window)
    assert not loses_money(rate * 0.99, stake, reward, window)


def test_where_nothing_is_at_stake_everything_has_to_be_looked_at() -> None:
    assert least_rate(0.0) == 1.0
    assert least_rate(0.0, reward=0.5) == 1.0


def test_a_weaker_detection_needs_more_audits() -> None:
    assert least_rate(100, detection=0.5) == pytest.approx(2 * least_rate(100, detection=1.0))


@pytest.mark.parametrize(("rate", "confidence", "items"), [(0.01, 0.99, 459), (0.05, 0.9, 45), (0.25, 0.999, 25)])
def test_items_until_somebody_is_caught(rate: float, confidence: float, items: int) -> None:
    """Against the table of the textbook formula k = ln(1 - confidence) / ln(1 - rate)."""
    assert items_until_caught(rate, confidence, detection=1.0) == pytest.approx(items, abs=1)
