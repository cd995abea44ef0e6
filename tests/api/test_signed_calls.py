"""Signed calls: taken once, from the key's own node, for this pool, now; everything else is refused."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from farflung.api.errors import Refused
from farflung.api.signed_calls import (
    AT_HEADER,
    BODY_HEADER,
    MAX_NONCES,
    NONCE_HEADER,
    NONCE_MS,
    SIGNATURE_HEADER,
    WINDOW_MS,
    Call,
    NonceBook,
    ServerClock,
    read_call,
    signing_headers,
)
from farflung.identity.keys import key_from_bytes
from farflung.wire.canonical import sha256_hex

ALICE, BOB = key_from_bytes(b"\x01" * 32), key_from_bytes(b"\x02" * 32)
POOL, BODY, NOW_MS = "a" * 64, sha256_hex(b"body"), 1_700_000_000_000


def headers(**changes: Any) -> dict[str, str]:
    values = {"method": "POST", "target": "/v1/leases?wait_s=5", "body_sha256": BODY, "at_ms": NOW_MS}
    return signing_headers(ALICE, POOL, **(values | changes))


def call(sent: dict[str, str], **changes: Any) -> Call:
    values = {"pool_digest": POOL, "method": "POST", "target": "/v1/leases?wait_s=5"}
    return read_call(sent, **(values | changes))


def test_a_signed_call_is_taken_from_its_node() -> None:
    assert NonceBook().check(call(headers()), ALICE.address, NOW_MS)


@pytest.mark.parametrize(
    "changes",
    [{"pool_digest": "b" * 64}, {"method": "PUT"}, {"target": "/v1/leases?wait_s=50"}, {"target": "/v1/forfeits"}],
)
def test_it_counts_for_nothing_else(changes: dict[str, str]) -> None:
    with pytest.raises(Refused, match="signed by"):
        NonceBook().check(call(headers(), **changes), ALICE.address, NOW_MS)


@pytest.mark.parametrize(
    "change",
    [
        lambda sent: sent | {BODY_HEADER: sha256_hex(b"another")},
        lambda sent: sent | {AT_HEADER: str(NOW_MS + 1)},
        lambda sent: sent | {NONCE_HEADER: "0" * 32},
        lambda sent: sent | {SIGNATURE_HEADER: headers()[SIGNATURE_HEADER]},
        lambda sent: sent | {SIGNATURE_HEADER: ""},
        lambda sent: sent | {SIGNATURE_HEADER: "00" * 65},
        lambda sent: sent | {SIGNATURE_HEADER: "zz"},
    ],
)
def test_a_header_that_was_changed_is_noticed(change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    with pytest.raises(Refused) as refusal:
        NonceBook().check(call(change(headers())), ALICE.address, NOW_MS)
    assert refusal.value.reason == "bad_signature"


@pytest.mark.parametrize(
    "sent",
    [
        {},
        headers() | {AT_HEADER: "soon"},
        headers() | {AT_HEADER: "9" * 40},
        headers() | {NONCE_HEADER: "x" * 32},
        headers() | {BODY_HEADER: "short"},
    ],
)
def test_headers_that_are_none_are_refused(sent: dict[str, str]) -> None:
    with pytest.raises(Refused) as refusal:
        call(sent)
    assert refusal.value.reason == "bad_signature"


def test_nobody_calls_in_anothers_name() -> None:
    with pytest.raises(Refused, match="not by"):
        NonceBook().check(call(headers()), BOB.address, NOW_MS)


def test_w13_the_same_call_is_taken_once_for_as_long_as_it_could_be_taken() -> None:
    book, sent = NonceBook(), call(headers())
    assert book.check(sent, ALICE.address, NOW_MS - WINDOW_MS)
    for now_ms in (NOW_MS - WINDOW_MS, NOW_MS, NOW_MS + WINDOW_MS):
        with pytest.raises(Refused, match="taken before"):
            book.check(sent, ALICE.address, now_ms)
    assert 2 * WINDOW_MS < NONCE_MS, "a nonce outlives every call that could bring it again"


@pytest.mark.parametrize("off_ms", [WINDOW_MS + 1, -WINDOW_MS - 1])
def test_a_call_of_another_time_is_refused_with_both_times(off_ms: int) -> None:
    with pytest.raises(Refused, match=f"of {NOW_MS}, it is {NOW_MS + off_ms} here"):
        NonceBook().check(call(headers()), ALICE.address, NOW_MS + off_ms)


def test_the_book_is_bounded_and_has_room_again_later() -> None:
    book = NonceBook(max_nonces=3)
    for _ in range(3):
        assert book.check(call(headers()), ALICE.address, NOW_MS)
    assert not book.check(call(headers()), ALICE.address, NOW_MS)
    later_ms = NOW_MS + NONCE_MS
    assert book.check(call(headers(at_ms=later_ms)), ALICE.address, later_ms)
    assert MAX_NONCES >= 200 * NONCE_MS / 1000, "one address at the default limit of calls does not fill it"


def test_a_call_that_is_refused_takes_no_room() -> None:
    book = NonceBook(max_nonces=1)
    for _ in range(5):
        with pytest.raises(Refused):
            book.check(replace(call(headers()), at_ms=NOW_MS + 1), ALICE.address, NOW_MS)
    assert book.check(call(headers()), ALICE.address, NOW_MS)


def test_a_machine_whose_clock_is_off_signs_in_the_servers_time() -> None:
    clock = ServerClock()
    clock.heard("Tue, 14 Nov 2023 22:13:20 GMT", NOW_MS + 7_200_000)
    assert clock.now_ms(NOW_MS + 7_200_500) == NOW_MS + 500
    clock.heard("Tue, 14 Nov 2023 22:13:21 GMT", NOW_MS + 7_202_100)
    assert clock.now_ms(NOW_MS + 7_200_500) == NOW_MS + 500, "a second of rounding and travel moves nothing"
    for nonsense in (None, "", "yesterday"):
        clock.heard(nonsense, NOW_MS)
    assert clock.now_ms(NOW_MS + 7_200_500) == NOW_MS + 500
