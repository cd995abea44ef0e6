"""The cheapest way to a version."""

from hypothesis import given
from hypothesis import strategies as st

from farflung.sharding.route import Route, VersionOffer, cheapest

GONE, PATCH = None, 10


def offer(patch: int | None = PATCH, snapshot: int | None = None) -> VersionOffer:
    return VersionOffer(patch_bytes=patch, snapshot_bytes=snapshot)


CHAIN = {0: offer(GONE, 100)} | {version: offer() for version in range(1, 30)} | {20: offer(PATCH, 100)}


def test_one_version_behind_takes_one_patch() -> None:
    assert cheapest(CHAIN, have=28, want=29) == Route(None, (29,), 10)


def test_a_late_joiner_takes_the_snapshot_that_leaves_least() -> None:
    assert cheapest(CHAIN, have=None, want=25) == Route(20, (21, 22, 23, 24, 25), 150)


def test_far_behind_a_snapshot_is_cheaper_than_the_chain() -> None:
    assert cheapest(CHAIN, have=1, want=20) == Route(20, (), 100)
    assert cheapest(CHAIN, have=15, want=20) == Route(None, (16, 17, 18, 19, 20), 50)


def test_there_is_nothing_to_do_and_no_way() -> None:
    assert cheapest(CHAIN, have=7, want=7) == Route(None, (), 0)
    assert cheapest({3: offer()}, have=1, want=3) is None
    assert cheapest({}, have=None, want=3) is None


@given(
    st.dictionaries(
        st.integers(0, 12),
        st.builds(offer, st.one_of(st.none(), st.integers(0, 50)), st.one_of(st.none(), st.integers(0, 200))),
    ),
    st.one_of(st.none(), st.integers(0, 12)),
    st.integers(0, 12),
)
def test_no_other_way_is_cheaper(offers: dict[int, VersionOffer], have: int | None, want: int) -> None:
    costs: dict[int, int] = {} if have is None else {have: 0}
    for version in range(13):
        found = offers.get(version)
        ways = [costs[version]] if version in costs else []
        if found is not None and found.snapshot_bytes is not None:
            ways.append(found.snapshot_bytes)
        if found is not None and found.patch_bytes is not None and version - 1 in costs:
            ways.append(costs[version - 1] + found.patch_bytes)
        if ways:
            costs[version] = min(ways)
    route = cheapest(offers, have=have, want=want)
    assert (None if route is None else route.num_bytes) == costs.get(want)
