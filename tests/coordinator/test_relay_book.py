"""Who is handed out, who stands below whom, and who is dropped for what."""

from typing import Any

from farflung.coordinator import relay_book
from farflung.coordinator.relay_book import LOOK_AGAIN_MS, LOOK_MS, MAX_PER_HOST, MAX_RELAYS, BookRules, RelayBook
from farflung.wire.relay import RelayOffer

SILENT_MS = 10_000
RULES = BookRules(origin_slots=2, fan_out=2, slot_bytes_per_s=1e6, per_reader=2, silent_after_ms=SILENT_MS)


def url(number: int) -> str:
    return f"http://9.9.{number // 200}.{number % 200 + 1}:7500"


def offer(number: int = 0, **changes: Any) -> RelayOffer:
    values = {"relay": f"relay-{number}", "url": url(number), "upload_bytes_per_s": 10_000_000, "policy_version": 5}
    return RelayOffer(**(values | changes))


def listed(book: RelayBook, *numbers: int, now_ms: int = 0) -> None:
    """Relays that were offered and found in order."""
    for number in numbers:
        assert book.offered(offer(number), now_ms) == ""
    for found, _ in book.due(now_ms):
        book.looked(found, "", now_ms, version=5)
    book.settle(5, now_ms)


def told(book: RelayBook, node: str = "w", now_ms: int = 0, newest: int = 5) -> tuple[str, ...]:
    return book.for_reader(node, "8.8.8.8", newest, now_ms)


def problems(book: RelayBook, now_ms: int = 0, newest: int = 5) -> dict[str, str]:
    return {status.url: status.problem for status in book.statuses(newest, now_ms)}


def test_a_relay_is_handed_out_once_it_was_looked_at() -> None:
    book = RelayBook(RULES)
    assert book.offered(offer(), 0) == ""
    book.settle(5, 0)
    assert told(book) == ()
    assert problems(book) == {url(0): relay_book.NEW}
    assert book.due(0) == [(url(0), False)]
    assert book.due(0) == [], "one look at a time"
    book.looked(url(0), "unreachable: refused", 0)
    assert told(book) == ()
    assert problems(book) == {url(0): "unreachable: refused"}
    assert book.due(LOOK_AGAIN_MS - 1) == []
    assert book.due(LOOK_AGAIN_MS) == [(url(0), False)]
    book.looked(url(0), "", LOOK_AGAIN_MS, version=5)
    assert told(book, now_ms=LOOK_AGAIN_MS) == (url(0),)
    assert book.due(LOOK_MS) == []
    book.offered(offer(), LOOK_MS)
    assert book.due(LOOK_MS + LOOK_AGAIN_MS) == [(url(0), False)]


def test_a_silent_relay_is_dropped_and_comes_back_by_itself() -> None:
    book = RelayBook(RULES)
    listed(book, 0)
    assert told(book, now_ms=SILENT_MS) == (url(0),)
    assert told(book, now_ms=SILENT_MS + 1) == ()
    assert problems(book, SILENT_MS + 1) == {url(0): "silent"}
    assert book.due(SILENT_MS + 1) == [], "nobody looks at the dead"
    book.offered(offer(), SILENT_MS + 2)
    assert told(book, now_ms=SILENT_MS + 2) == (url(0),)
    book.settle(5, 12 * SILENT_MS)
    assert book.statuses(5, 12 * SILENT_MS) == ()


def test_who_was_seen_lying_is_out_for_good_under_whatever_name() -> None:
    book = RelayBook(RULES)
    listed(book, 0, 1)
    book.looked(url(0), "x", 1, lie="it sent other bytes for chunk ab")
    assert told(book, now_ms=1) == (url(1),)
    book.offered(offer(0), 2)
    book.looked(url(0), "", 3, version=5)
    assert told(book, now_ms=3) == (url(1),)
    late_ms = 20 * SILENT_MS
    book.settle(5, late_ms)
    assert book.offered(offer(0, relay="another"), late_ms) == ""
    assert problems(book, late_ms)[url(0)].startswith("lied: it sent other bytes")


def test_an_accused_relay_is_kept_from_its_accuser_and_looked_at() -> None:
    book = RelayBook(RULES)
    listed(book, 0, 1)
    book.accuse("w", [url(0), "http://9.9.9.9:1"])
    assert told(book, "w") == (url(1),)
    assert set(told(book, "v")) == {url(0), url(1)}
    assert book.due(LOOK_AGAIN_MS) == [(url(0), True)]
    book.looked(url(0), "", LOOK_AGAIN_MS, version=5)
    book.offered(offer(0), 2 * LOOK_AGAIN_MS)
    book.accuse("w", [url(0)])
    assert book.due(2 * LOOK_AGAIN_MS) == [], "the same accusation again is no news"
    assert [status.num_accusers for status in book.statuses(5, 0)] == [1, 0]


def test_nobody_takes_over_the_address_of_a_relay_that_lives() -> None:
    book = RelayBook(RULES)
    listed(book, 0)
    assert "another relay" in book.offered(offer(0, relay="thief"), SILENT_MS)
    assert book.offered(offer(0, relay="heir"), SILENT_MS + 1) == ""


def test_a_relay_that_gets_no_further_is_dropped_but_not_one_that_is_a_little_late() -> None:
    book = RelayBook(RULES)
    listed(book, 0)
    assert told(book, newest=100) == (url(0),)
    late_ms = 2 * SILENT_MS + 1
    book.offered(offer(0), late_ms)
    assert told(book, now_ms=late_ms, newest=8) == ()
    assert problems(book, late_ms, newest=8) == {url(0): "behind: it has version 5"}
    book.offered(offer(0, policy_version=6), late_ms)
    assert told(book, now_ms=late_ms, newest=8) == (url(0),)


def test_the_tree_closes_when_a_parent_goes_and_nobody_else_moves() -> None:
    book = RelayBook(RULES)
    listed(book, *range(6))
    above = {number: book.above(url(number), "8.8.8.8") for number in range(6)}
    roots = [number for number, chain in above.items() if not chain]
    assert len(roots) == 2
    assert all(len(chain) == 1 for number, chain in above.items() if number not in roots)
    gone, stays = roots
    now_ms = SILENT_MS + 1
    for number in range(6):
        if number != gone:
            book.offered(offer(number), now_ms)
    book.settle(5, now_ms)
    after = {number: book.above(url(number), "8.8.8.8") for number in range(6) if number != gone}
    for number, chain in after.items():
        assert url(gone) not in chain
        assert number == stays or above[number] != (url(stays),) or chain == (url(stays),)


def test_full_relays_are_spared_and_slow_ones_feed_nobody() -> None:
    book = RelayBook(RULES)
    book.offered(offer(0, upload_bytes_per_s=100), 0)
    listed(book, 1, 2, 3)
    assert book.above(url(0), "8.8.8.8") != ()
    assert all(url(0) not in book.above(url(number), "8.8.8.8") for number in range(4))


def test_an_address_of_ones_own_network_is_told_to_nobody_outside() -> None:
    book = RelayBook(RULES)
    book.offered(offer(0, url="http://10.0.0.3:7500"), 0)
    listed(book, 1)
    assert set(book.for_reader("w", "10.0.0.9", 5, 0)) == {"http://10.0.0.3:7500", url(1)}
    assert told(book) == (url(1),)


def test_relays_that_the_operator_lists_need_not_register() -> None:
    book = RelayBook(RULES, ["http://cache.example"])
    assert told(book) == ()
    assert book.due(0) == [("http://cache.example", False)]
    book.looked("http://cache.example", "", 0, version=0)
    late_ms = 100 * SILENT_MS
    assert told(book, now_ms=late_ms, newest=50) == ("http://cache.example",)
    book.settle(5, late_ms)
    assert problems(book, late_ms) == {"http://cache.example": ""}
    book.looked("http://cache.example", "unreachable", late_ms)
    assert told(book, now_ms=late_ms) == ()


def test_the_book_is_bounded() -> None:
    book = RelayBook(RULES)
    for port in range(MAX_PER_HOST):
        assert book.offered(offer(0, url=f"http://9.9.9.9:{port + 1}"), 0) == ""
    assert "of this host" in book.offered(offer(0, url="http://9.9.9.9:999"), 0)
    for number in range(MAX_RELAYS - MAX_PER_HOST):
        assert book.offered(offer(number), 0) == ""
    assert "no room" in book.offered(offer(MAX_RELAYS), 0)
    assert len(book.statuses(5, 0)) == relay_book.MAX_LISTED_RELAYS
    for number in range(200):
        book.accuse(f"node-{number}", [url(0)])
    assert max(status.num_accusers for status in book.statuses(5, 0)) <= relay_book.MAX_ACCUSERS
