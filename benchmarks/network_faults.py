"""What a bad relay costs a client, and whether a crowd that comes back topples the origin.

network_faults/<case>      seconds until a client has a version from three relays behind its own link, one of them bad;
                           the peer is the same client with three good relays, in alternating rounds. A case is bad from
                           the start, or "later", from a third of the time on; a lie is one bit of a chunk
network_faults/no-relay    the same with every relay bad in another way: the origin gives all
network_faults/gone-narrow one of three relays gone where the relays are what is narrow, so that 1.5 times is the bound
network_faults/crowd       seconds from a killed coordinator listening again until each of 1,500 clients that waited for
                           a version has its manifest and a chunk (`benchmarks.crowd`); the peer is 150 clients, and the
                           longest that anybody else waited for an answer is in the detail

The network is a proxy for each server (`tests/harness/shaping_proxy.py`): latency, loss as late pieces, a rate for each
relay and one for the client's own link, which is narrower than any two relays together, as a worker's is.
"""

import asyncio
import resource
import shutil
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.crowd import crowd
from benchmarks.record import record
from farflung.broadcast.landing import land
from farflung.broadcast.servers import Servers
from farflung.broadcast.sources import SourceBook
from farflung.broadcast.swarm import Swarm
from farflung.wire.manifest import Manifest

sys.path.append(str(Path(__file__).parents[1] / "tests" / "harness"))
from relay_harness import Origin, relaying, serving, version
from shaping_proxy import Link, Mode, ShapingProxy, shaping

MEGABYTE = 10**6
CHUNK_BYTES, NUM_CHUNKS = MEGABYTE, 64
CLIENT_RATE, RELAY_RATE, SLOW_RATE, NARROW_RATE = 16 * MEGABYTE, 10 * MEGABYTE, MEGABYTE // 4, 5 * MEGABYTE
LATENCY_S, LOSS = 0.02, 0.002
NUM_ROUNDS = 3
NUM_CLIENTS = 1500

Worsen = Callable[[ShapingProxy], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """How one relay of three is bad."""

    name: str
    worsen: Worsen
    is_late: bool = False
    """Only from the middle on."""


def _mode(mode: Mode) -> Worsen:
    def worsen(proxy: ShapingProxy) -> None:
        proxy.mode = mode

    return worsen


def _slow(proxy: ShapingProxy) -> None:
    proxy.link = Link(SLOW_RATE)


CASES = (
    Case(name="gone", worsen=_mode("gone")),
    Case(name="silent", worsen=_mode("silent")),
    Case(name="drip", worsen=_mode("drip")),
    Case(name="lying", worsen=_mode("lie")),
    Case(name="slow", worsen=_slow),
    Case(name="gone-later", worsen=_mode("gone"), is_late=True),
    Case(name="silent-later", worsen=_mode("silent"), is_late=True),
    Case(name="drip-later", worsen=_mode("drip"), is_late=True),
    Case(name="lying-later", worsen=_mode("lie"), is_late=True),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    took_s: float
    liars: int
    shares: tuple[float, ...]
    """Of the bytes: the origin's, then the relays'."""


class Net:
    """An origin and three relays that have a version, each behind a proxy."""

    def __init__(self, manifest: Manifest, origin: str, relays: Sequence[str], folder: Path) -> None:
        self._manifest = manifest
        self._origin = origin
        self._relays = relays
        self._folder = folder

    async def fetch(self, cases: Sequence[Case], relay_rate: float = RELAY_RATE) -> Fetched:
        """A new client over new proxies; the first relays are bad as `cases` say."""
        client = Link(CLIENT_RATE)
        async with AsyncExitStack() as stack:
            proxies = [
                await stack.enter_async_context(
                    shaping(
                        ShapingProxy(server=url, link=Link(relay_rate), client=client, latency_s=LATENCY_S, loss=LOSS)
                    )
                )
                for url in (self._origin, *self._relays)
            ]
            for case, proxy in zip(cases, proxies[1:], strict=False):
                if not case.is_late:
                    case.worsen(proxy)
            servers = await stack.enter_async_context(Servers())
            book = SourceBook(proxies[0].url)
            book.offer([proxy.url for proxy in proxies[1:]])
            swarm = Swarm(servers.chunk, book, asyncio.get_running_loop().time)
            later = asyncio.get_running_loop().call_later(
                NUM_CHUNKS * CHUNK_BYTES / CLIENT_RATE / 3,
                lambda: [case.worsen(proxy) for case, proxy in zip(cases, proxies[1:], strict=False) if case.is_late],
            )
            started_s = asyncio.get_running_loop().time()
            await land(self._manifest, self._folder, swarm.get_chunk)
            took_s = asyncio.get_running_loop().time() - started_s
            later.cancel()
        shutil.rmtree(self._folder)
        total = sum(book.bytes_from.values())
        return Fetched(
            took_s=took_s,
            liars=len(book.liars),
            shares=tuple(round(book.bytes_from.get(proxy.url, 0) / total, 3) for proxy in proxies),
        )


@asynccontextmanager
async def network(folder: Path) -> AsyncIterator[Net]:
    async with AsyncExitStack() as stack:
        origin = await stack.enter_async_context(serving(Origin()))
        manifest = origin.publish(version(0, num_chunks=NUM_CHUNKS, chunk_bytes=CHUNK_BYTES))
        relays = [
            await stack.enter_async_context(relaying(folder / str(number), origin.url, max_requests_per_s=1e6))
            for number in range(3)
        ]
        async with Servers() as servers:
            for relay in relays:
                await servers.latest_manifest(relay, -1, 5)
                for chunk in manifest.files[0].chunks:
                    await servers.chunk(relay, chunk.sha256, chunk.num_bytes)
        yield Net(manifest, origin.url, relays, folder / "client")


async def measure_faults(folder: Path) -> None:
    async with network(folder) as net:
        await net.fetch(())  # warm-up
        for case in CASES:
            pairs = [(await net.fetch((case,)), await net.fetch(())) for _ in range(NUM_ROUNDS)]
            _tell(f"network_faults/{case.name}", pairs, "three good relays")
        worst = [case for case in CASES if case.name in ("gone", "silent", "lying")]
        pairs = [(await net.fetch(worst), await net.fetch(())) for _ in range(NUM_ROUNDS)]
        _tell("network_faults/no-relay", pairs, "three good relays")
        pairs = [(await net.fetch(CASES[:1], NARROW_RATE), await net.fetch((), NARROW_RATE)) for _ in range(NUM_ROUNDS)]
        _tell("network_faults/gone-narrow", pairs, "three good relays", NARROW_RATE)


def measure_crowd(folder: Path) -> None:
    few = asyncio.run(crowd(folder / "few", NUM_CLIENTS // 10))
    many = asyncio.run(crowd(folder / "many", NUM_CLIENTS))
    detail = {
        "arrival of all, s": round(many.arrival_s, 2),
        "longest answer to another, s": round(many.longest_answer_s, 2),
        "peak MB of the coordinator": round(many.peak_bytes / MEGABYTE),
        "CPU-s of the coordinator": round(many.cpu_s, 2),
    }
    record("network_faults/crowd", many.return_s, few.return_s, f"{few.num_clients} clients", "s", detail)
    print(f"network_faults/crowd: {many.num_clients} clients back in {many.return_s:.2f} s, {few.num_clients} in "
          f"{few.return_s:.2f} s; {detail}")  # fmt: skip


def _tell(name: str, pairs: Sequence[tuple[Fetched, Fetched]], peer: str, relay_rate: float = RELAY_RATE) -> None:
    bad_s, good_s = (statistics.median(pair[side].took_s for pair in pairs) for side in (0, 1))
    megabytes = NUM_CHUNKS * CHUNK_BYTES / MEGABYTE
    detail = {
        "times as long, each round": [round(bad.took_s / good.took_s, 2) for bad, good in pairs],
        "shares of origin and relays": [bad.shares for bad, _ in pairs][-1],
        "liars found": pairs[-1][0].liars,
        "MB": megabytes,
        "client MB/s": CLIENT_RATE / MEGABYTE,
        "relay MB/s": relay_rate / MEGABYTE,
        "one way ms": LATENCY_S * 1000,
        "loss": LOSS,
    }
    entry = record(name, bad_s, good_s, peer, "s", detail)
    print(f"{name}: {bad_s:.2f} s, three good ones {good_s:.2f} s: {bad_s / good_s:.2f} times; {entry['detail']}")


def run() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    folder = Path(tempfile.mkdtemp(prefix="network-faults-"))
    try:
        asyncio.run(measure_faults(folder))
        measure_crowd(folder)
    finally:
        shutil.rmtree(folder)
