"""What one address may use."""

import asyncio

import pytest

from farflung.api.server import limits
from farflung.api.server.limits import BURST_S, ByteBudget, RateLimit, provider_of
from farflung.errors import Transient

STRANGER, OTHER = "203.0.113.7", "203.0.113.8"


def test_an_ipv6_network_is_one_provider_and_this_machine_is_none() -> None:
    assert provider_of(STRANGER) == STRANGER
    assert provider_of(f"::ffff:{STRANGER}") == STRANGER
    assert provider_of("2001:db8:1:2:3:4:5:6") == provider_of("2001:db8:1:2:ffff::1") == "2001:db8:1:2::/64"
    assert provider_of("fe80::1%eth0") == "fe80::/64"
    for own in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", None, ""):
        assert provider_of(own) is None
    assert provider_of("not an address") == "not an address"


def test_a_burst_passes_then_only_the_rate() -> None:
    rate = RateLimit(2.0)
    burst = round(2 * BURST_S)
    assert [rate.admits(STRANGER, 0.0) for _ in range(burst + 1)] == [True] * burst + [False]
    assert rate.admits(OTHER, 0.0), "another address has its own share"
    assert [rate.admits(STRANGER, 0.5) for _ in range(2)] == [True, False]
    assert all(rate.admits(None, 0.5) for _ in range(10 * burst)), "this machine is not limited"


def test_a_flood_of_addresses_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ADDRESSES", 100)
    rate = RateLimit(1.0)
    for number in range(1000):
        assert rate.admits(f"address {number}", 0.0)
    assert len(rate._buckets) == 100


async def test_bytes_under_way_stay_within_the_budget_and_who_waits_goes_on_when_there_is_room() -> None:
    budget = ByteBudget(100)
    most = 0

    async def send(provider: str | None) -> None:
        nonlocal most
        async with budget.hold(20, provider):
            most = max(most, budget.num_bytes)
            await asyncio.sleep(0)

    await asyncio.gather(*(send(f"address {number % 7}") for number in range(50)))
    assert (most, budget.num_bytes) == (100, 0)


async def test_one_address_cannot_have_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LONGEST_WAIT_S", 0.05)
    budget = ByteBudget(100)
    async with budget.hold(25, STRANGER):
        with pytest.raises(Transient, match="under way"):
            async with budget.hold(1, STRANGER):
                raise AssertionError
        async with budget.hold(25, OTHER), budget.hold(50, None):
            assert budget.num_bytes == 100
    assert budget.num_bytes == 0


async def test_what_is_larger_than_the_share_passes_alone() -> None:
    budget = ByteBudget(100)
    async with budget.hold(90, STRANGER):
        assert budget.num_bytes == 90
