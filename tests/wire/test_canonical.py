"""Canonical bytes and digests, against the text of RFC 8785 and the formula of the module."""

import hashlib
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.errors import PeerFault
from farflung.wire.canonical import Record, canonical_json, sha256_hex, tagged_digest


class Sample(Record, frozen=True, kw_only=True):
    DOMAIN: ClassVar[str] = "test/sample/1"
    MAX_BYTES: ClassVar[int] = 64

    number: int
    text: str = ""
    signature: str = ""


class Twin(Record, frozen=True, kw_only=True):
    """The same fields under another domain."""

    DOMAIN: ClassVar[str] = "test/twin/1"

    number: int
    text: str = ""
    signature: str = ""


def test_numbers_strings_and_order_of_keys_follow_rfc_8785() -> None:
    # The sample of section 3.2.2, and keys in UTF-16 order from section 3.2.3.
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    assert (
        canonical_json(value)
        == (
            '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
            '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
        ).encode()
    )
    assert canonical_json({"\ufb33": 1, "\U0001f600": 2, "1": 3}) == '{"1":3,"\U0001f600":2,"\ufb33":1}'.encode()


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (2**53 - 1, b"9007199254740991"),
        (1 - 2**53, b"-9007199254740991"),
        (2**53, b'"9007199254740992"'),
        (-(2**53), b'"-9007199254740992"'),
        (2**64, b'"18446744073709551616"'),
    ],
)
def test_integers_that_a_json_number_may_lose_are_decimal_strings(number: int, expected: bytes) -> None:
    assert canonical_json(number) == expected


def test_integers_are_found_at_any_depth_and_booleans_are_no_integers() -> None:
    assert canonical_json({"a": [2**60, (True, 1)], "b": {"c": 2**60}}) == (
        b'{"a":["1152921504606846976",[true,1]],"b":{"c":"1152921504606846976"}}'
    )


def test_a_digest_is_the_hash_of_length_prefixed_domain_and_body_without_signature() -> None:
    body, domain = b'{"number":5,"text":"x"}', b"test/sample/1"
    message = len(domain).to_bytes(8, "big") + domain + len(body).to_bytes(8, "big") + body
    assert Sample(number=5, text="x", signature="s").digest() == hashlib.sha256(message).hexdigest()


def test_the_same_content_under_another_domain_has_another_digest() -> None:
    assert Sample(number=5).to_bytes() == Twin(number=5).to_bytes()
    assert Sample(number=5).digest() != Twin(number=5).digest()


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_two_lists_of_parts_share_a_digest_only_if_they_are_equal(one: list[bytes], other: list[bytes]) -> None:
    assert (tagged_digest("d", *one) == tagged_digest("d", *other)) == (one == other)


def test_a_part_is_not_mistaken_for_the_domain() -> None:
    assert tagged_digest("a", b"b") != tagged_digest("ab") != tagged_digest("", b"ab")


def test_a_content_address_is_what_sha256sum_prints() -> None:
    assert sha256_hex(memoryview(b"hello")) == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


def test_the_limit_counts_bytes_and_includes_its_last_one() -> None:
    longest = Sample(number=1, text="x" * (64 - len(Sample(number=1).to_bytes())))
    assert len(longest.to_bytes()) == 64
    assert Sample.from_bytes(longest.to_bytes()) == longest
    with pytest.raises(PeerFault, match="Sample of 65 bytes, at most 64 allowed"):
        Sample.from_bytes(Sample(number=1, text=longest.text + "x").to_bytes())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b'{"number":1}',
        b'{"number":1.5,"signature":"","text":""}',
        b'{"number":null,"signature":"","text":""}',
        b'{"number":"9007199254740991","signature":"","text":""}',
        b'{"number":9007199254740992,"signature":"","text":""}',
        b'{"number":1,"signature":"","text":"\xff"}',
        b'{"number":1,"signature":"","text":"\\ud800"}',
        b'{"number":1,"signature":"","text":"\\u0041"}',
        b"[" * 64,
    ],
)
def test_what_is_not_this_record_in_canonical_form_is_refused(data: bytes) -> None:
    with pytest.raises(PeerFault, match="malformed_record: Sample"):
        Sample.from_bytes(data)
