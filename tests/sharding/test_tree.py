"""The relay tree: nobody fed by too many hops or too few slots, and as few moves as can be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.sharding.tree import ORIGIN, RelayOffer, RelayTree, assign


def offers(*rates: float, prefix: str = "r") -> list[RelayOffer]:
    return [RelayOffer(relay_id=f"{prefix}{index}", upload_bytes_per_s=rate) for index, rate in enumerate(rates)]


def tree_of(relays: list[RelayOffer], before: RelayTree | None = None, origin_slots: int = 2) -> RelayTree:
    return assign(relays, origin_slots=origin_slots, slot_rate=10.0, max_fan_out=4, before=before)


def num_children(tree: RelayTree) -> dict[str, int]:
    counts: dict[str, int] = {}
    for parent in tree.parents.values():
        counts[parent] = counts.get(parent, 0) + 1
    return counts


def test_fast_relays_stand_near_the_origin_and_slow_ones_are_leaves() -> None:
    tree = tree_of(offers(5, 25, 5, 40, 5, 5))
    assert tree.parents["r3"] == tree.parents["r1"] == ORIGIN
    assert {tree.parents[leaf] for leaf in ("r0", "r2", "r4", "r5")} <= {"r1", "r3"}
    assert tree.max_depth == 2
    assert tree.sources("r0") == [tree.parents["r0"], ORIGIN]


@given(
    st.lists(st.floats(0, 100), max_size=40),
    st.lists(st.integers(0, 39), max_size=20),
    st.lists(st.floats(0, 100), max_size=10),
)
def test_every_relay_reaches_the_origin_and_moves_only_if_its_parent_left(
    rates: list[float], leaving: list[int], joining: list[float]
) -> None:
    first = offers(*rates)
    before = tree_of(first)
    second = [offer for index, offer in enumerate(first) if index not in leaving] + offers(*joining, prefix="new")
    after = tree_of(second, before)
    assert set(after.parents) == {offer.relay_id for offer in second}
    for relay in after.parents:
        assert 1 <= after.depth(relay) <= len(second)
        assert after.sources(relay)[-1] == ORIGIN
    slots = {offer.relay_id: min(4, int(offer.upload_bytes_per_s // 10)) for offer in second}
    for parent, count in num_children(after).items():
        assert parent == ORIGIN or count <= slots[parent]
    for relay, parent in after.parents.items():
        was = before.parents.get(relay)
        if was is not None and (was in after.parents or (was == ORIGIN and num_children(before)[ORIGIN] <= 2)):
            assert parent == was


def test_a_relay_that_moves_takes_what_hangs_below_it_along() -> None:
    before = RelayTree({"a": ORIGIN, "b": "a", "c": "b"})
    relays = [RelayOffer(relay_id=name, upload_bytes_per_s=20) for name in ("b", "c", "z")]
    after = tree_of(relays, before)
    assert after.parents["c"] == "b"
    assert after.parents["b"] == ORIGIN


def test_where_nobody_has_a_slot_the_origin_feeds_all() -> None:
    assert set(tree_of(offers(*[1.0] * 9)).parents.values()) == {ORIGIN}


@pytest.mark.parametrize("relays", [offers(1) + offers(1), [RelayOffer(relay_id=ORIGIN, upload_bytes_per_s=1)]])
def test_a_relay_offered_twice_or_named_as_the_origin_is_refused(relays: list[RelayOffer]) -> None:
    with pytest.raises(ValueError, match="offers"):
        tree_of(relays)


def test_ten_thousand_relays_hang_no_deeper_than_their_fan_out_asks() -> None:
    tree = tree_of(offers(*[40.0] * 10_000), origin_slots=4)
    assert tree.max_depth == 7  # 4 + 4^2 + ... + 4^6 = 5,460 < 10,000
