import pytest

from farflung.telemetry.counters import DropCounter


def test_drops_are_counted_by_reason_most_frequent_first() -> None:
    drops = DropCounter({"stale": 2})
    drops.add("no_signal", 5)
    drops.add("stale")
    drops.add("expired", 0)
    assert list(drops.counts.items()) == [("no_signal", 5), ("stale", 3)]
    assert drops.total == 8


@pytest.mark.parametrize(("reason", "count"), [("", 1), ("stale", -1)])
def test_a_drop_without_reason_or_with_a_negative_count_is_refused(reason: str, count: int) -> None:
    drops = DropCounter()
    with pytest.raises(ValueError, match="a drop needs a reason"):
        drops.add(reason, count)
    assert drops.total == 0
