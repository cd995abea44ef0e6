"""A list of relays sends nobody to somebody else's machine."""

import pytest

from farflung.coordinator.relay_addresses import address_of, may_be_told, number_of, problem_of

PUBLIC, OTHER = "198.51.100.7", "9.9.9.9"
"""The first is of a block for documentation, which no network has."""


@pytest.mark.parametrize(
    ("url", "caller", "words"),
    [
        (f"http://{OTHER}:7500", "8.8.8.8", "the only host"),
        (f"http://[::ffff:{OTHER}]:7500", "8.8.8.8", "the only host"),
        ("http://relay.example:7500", OTHER, "a name"),
        ("http://localhost:7500", "127.0.0.1", "a name"),
        ("http://2130706433:7500", "127.0.0.1", "a name"),
        ("http://0x7f.1:7500", "127.0.0.1", "a name"),
        ("http://127.0.0.1:7500", "127.0.0.1", "private"),
        ("http://[::1]:7500", "::1", "private"),
        ("http://10.0.0.3:7500", "10.0.0.3", "private"),
        ("http://169.254.169.254:80", "169.254.169.254", "private"),
        ("http://[fe80::1]:7500", "fe80::1%eth0", "private"),
        ("http://[fd00::1]:7500", "fd00::1", "private"),
        ("http://100.64.0.1:7500", "100.64.0.1", "private"),
        ("http://0.0.0.0:7500", "0.0.0.0", "private"),
        (f"http://{OTHER}:7500/admin", OTHER, "must look like"),
        (f"http://{OTHER}:7500?x=1", OTHER, "must look like"),
        (f"http://user:secret@{OTHER}", OTHER, "must look like"),
        (f"file://{OTHER}/etc/passwd", OTHER, "must look like"),
        ("", OTHER, "must look like"),
        (f"http://{OTHER}:7500", None, "the only host"),
    ],
)
def test_who_registers_names_only_itself_and_nothing_private(url: str, caller: str | None, words: str) -> None:
    assert words in problem_of(url, caller, may_be_private=False)


def test_ones_own_public_address_is_taken_however_it_is_spelt() -> None:
    assert problem_of(f"http://{OTHER}:7500", OTHER, may_be_private=False) == ""
    assert problem_of(f"https://{OTHER}", f"::ffff:{OTHER}", may_be_private=False) == ""
    assert problem_of("http://[2606:4700:0:0::1111]:7500", "2606:4700::1111", may_be_private=False) == ""


def test_private_addresses_are_taken_where_the_operator_says_so_but_still_only_ones_own() -> None:
    assert problem_of("http://10.0.0.3:7500", "10.0.0.3", may_be_private=True) == ""
    assert problem_of("http://127.0.0.1:7500", "127.0.0.1", may_be_private=True) == ""
    assert "the only host" in problem_of("http://10.0.0.4:7500", "10.0.0.3", may_be_private=True)


@pytest.mark.parametrize(
    ("url", "reader", "is_told"),
    [
        (f"http://{OTHER}:7500", "8.8.8.8", True),
        (f"http://{OTHER}:7500", "10.0.0.3", True),
        (f"http://{OTHER}:7500", None, True),
        ("http://relay.example:7500", "8.8.8.8", True),
        ("http://127.0.0.1:7500", "127.0.0.1", True),
        ("http://127.0.0.1:7500", "::1", True),
        ("http://127.0.0.1:7500", "10.0.0.3", False),
        ("http://127.0.0.1:7500", "8.8.8.8", False),
        ("http://10.0.0.3:7500", "10.0.0.9", True),
        ("http://10.0.0.3:7500", "127.0.0.1", True),
        ("http://10.0.0.3:7500", "8.8.8.8", False),
        ("http://10.0.0.3:7500", None, False),
    ],
)
def test_private_addresses_are_told_to_those_who_are_private_too(url: str, reader: str | None, is_told: bool) -> None:
    assert may_be_told(number_of(url), address_of(reader)) is is_told
