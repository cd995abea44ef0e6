"""Readers are spread over relays by what these can send, and keep theirs."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.sharding.spread import choose

WEIGHTS = {"fast": 4.0, "medium": 2.0, "slow": 1.0, "other": 1.0}
READERS = [f"worker-{number}" for number in range(4000)]


def test_each_relay_gets_its_weights_share_of_the_readers() -> None:
    first = Counter(choose(reader, WEIGHTS, 1)[0] for reader in READERS)
    for relay, weight in WEIGHTS.items():
        expected = len(READERS) * weight / sum(WEIGHTS.values())
        assert first[relay] == pytest.approx(expected, rel=0.12)


@given(st.text(max_size=8), st.dictionaries(st.text(max_size=8), st.floats(0.1, 100), max_size=8), st.integers(0, 5))
def test_a_relay_that_goes_changes_the_list_only_of_those_who_had_it(
    reader: str, weights: dict[str, float], count: int
) -> None:
    chosen = choose(reader, weights, count)
    assert len(chosen) == len(set(chosen)) == min(count, len(weights))
    assert choose(reader, dict(reversed(weights.items())), count) == chosen
    for gone in weights:
        left = choose(reader, {relay: weight for relay, weight in weights.items() if relay != gone}, count)
        assert left[: len(chosen) - (gone in chosen)] == [relay for relay in chosen if relay != gone]


def test_who_can_send_nothing_is_not_chosen() -> None:
    assert choose("reader", {"dead": 0.0, "negative": -1.0, "alive": 1e-9}, 3) == ["alive"]
