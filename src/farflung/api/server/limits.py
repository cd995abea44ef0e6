"""What one address may use: requests per second, and bytes under way. Pure bookkeeping; the caller brings the time.

An address is what the connection says, an IPv6 network of 64 bits counts as one. This machine's own addresses are not
limited: what runs here is the operator's. So a proxy on this machine has to bring limits of its own.
"""

import asyncio
import ipaddress
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from farflung.errors import Transient

MAX_ADDRESSES = 65_536
"""Addresses that are remembered; the longest silent make room."""
BURST_S = 10.0
"""Seconds of quiet that may be spent at once."""
SHARE = 4
"""One address may have 1 / SHARE of the bytes that may be under way."""
LONGEST_WAIT_S = 5.0
"""For room, before the caller is told to come again."""


def provider_of(address: str | None) -> str | None:
    """Whom the limits count together; None for this machine, which is not limited."""
    try:
        parsed = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return address or None
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    if parsed.is_loopback:
        return None
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_s: float


class RateLimit:
    """A token bucket for each provider."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def admits(self, provider: str | None, now_s: float) -> bool:
        """Whether one more request is within the limit; if so it is counted."""
        if provider is None:
            return True
        full = self._per_s * BURST_S
        bucket = self._buckets.setdefault(provider, _Bucket(full, now_s))
        self._buckets.move_to_end(provider)
        if len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        bucket.tokens = min(full, bucket.tokens + (now_s - bucket.at_s) * self._per_s)
        bucket.at_s = now_s
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


class ByteBudget:
    """Bytes of strangers' bodies, or of answers to them, that may be in memory at once."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._by_provider: Counter[str | None] = Counter()
        self._freed = asyncio.Condition()

    @property
    def num_bytes(self) -> int:
        """Held now."""
        return self._by_provider.total()

    @asynccontextmanager
    async def hold(self, num_bytes: int, provider: str | None) -> AsyncIterator[None]:
        """Wait for room for `num_bytes` and keep it for the block.

        Raises:
            Transient: there was no room for `LONGEST_WAIT_S`.
        """
        async with self._freed:
            try:
                async with asyncio.timeout(LONGEST_WAIT_S):
                    await self._freed.wait_for(lambda: self._has_room(num_bytes, provider))
            except TimeoutError:
                raise Transient(f"{self.num_bytes} bytes are under way already") from None
            self._by_provider[provider] += num_bytes
        try:
            yield
        finally:
            self._by_provider[provider] -= num_bytes
            if not self._by_provider[provider]:
                del self._by_provider[provider]
            async with self._freed:
                self._freed.notify_all()

    def _has_room(self, num_bytes: int, provider: str | None) -> bool:
        share = self._max_bytes if provider is None else self._max_bytes // SHARE
        mine = self._by_provider.get(provider, 0)
        is_alone = mine == 0 and self.num_bytes == 0  # a single piece above the share must get through some time
        return is_alone or (mine + num_bytes <= share and self.num_bytes + num_bytes <= self._max_bytes)
