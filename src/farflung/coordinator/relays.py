"""The relays' desk: relays register here, workers and validators learn whom to fetch from, and relays are looked at.

A look asks for the relay's newest manifest, which must be one that was published here, and for a chunk of it, whose
hash must be right: the smallest one, or several where somebody says that the relay lies. So it costs this machine a few
kilobytes a minute and relay. Whether the relay is honest to others nobody can see; they check every chunk themselves.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from farflung.broadcast.servers import Servers
from farflung.broadcast.trust import SPLIT_VIEW
from farflung.coordinator.core import Core
from farflung.coordinator.relay_addresses import problem_of
from farflung.coordinator.relay_book import BookRules, RelayBook
from farflung.errors import PeerFault, Transient
from farflung.wire.canonical import sha256_hex
from farflung.wire.manifest import Chunk, Manifest
from farflung.wire.relay import MAX_REASON_CHARS, RelayOffer, RelayStatus, Sources, SourcesWanted

logger = logging.getLogger(__name__)

LOOK_S = 20.0
"""For one look, after which the relay counts as unreachable."""
MAX_LOOKS = 8
"""At once."""
NUM_CHUNKS_IF_ACCUSED = 3
CHUNK_DIGEST, UNKNOWN_VERSION = "chunk_digest", "unknown_version"
LIES = frozenset({CHUNK_DIGEST, SPLIT_VIEW})
"""What nobody does by mistake, as with a proxy that redirects."""


@asynccontextmanager
async def relay_desk(core: Core, tls: ssl.SSLContext | None) -> AsyncIterator["RelayDesk"]:
    """The desk, which looks at nobody any more afterwards.

    Args:
        tls: how relays with https are checked; None = as the system does it.
    """
    async with Servers(tls=tls) as servers:
        desk = RelayDesk(core, servers)
        try:
            yield desk
        finally:
            await desk.close()


class RelayDesk:
    def __init__(self, core: Core, servers: Servers) -> None:
        """
        Args:
            servers: for looking at relays.
        """
        config = core.config
        self._core = core
        self._servers = servers
        self._dice = random.Random()
        self._looks: set[asyncio.Task[None]] = set()
        self._gate = asyncio.Semaphore(MAX_LOOKS)
        self._book = RelayBook(
            BookRules(
                origin_slots=config.relay_fan_out,
                fan_out=config.relay_fan_out,
                slot_bytes_per_s=config.relay_slot_bytes_per_s,
                per_reader=config.relays_per_node,
                silent_after_ms=round(config.silent_after_s * 1000),
            ),
            config.relays,
        )

    def offer(self, offer: RelayOffer, caller: str | None) -> Sources:
        """A relay's sign of life: where it stands, or why it is not listed."""
        core, now_ms = self._core, self._core.now_ms()
        refusal = ""
        if offer.url not in core.config.relays:
            refusal = problem_of(offer.url, caller, may_be_private=core.config.private_relays)
        refusal = refusal or self._book.offered(offer, now_ms)
        if refusal:
            return Sources(servers=(), oldest_version=self._oldest, refusal=refusal[:MAX_REASON_CHARS])
        self._book.accuse(offer.relay, offer.liars)
        return Sources(
            servers=self._book.above(offer.url, caller),
            oldest_version=self._oldest,
            refusal=self._book.problem(offer.url, core.table.newest, now_ms)[:MAX_REASON_CHARS],
        )

    def sources(self, wanted: SourcesWanted, caller: str | None) -> Sources:
        """Whom a worker or validator is to fetch from."""
        self._book.accuse(wanted.node, wanted.liars)
        servers = self._book.for_reader(wanted.node, caller, self._core.table.newest, self._core.now_ms())
        return Sources(servers=servers, oldest_version=self._oldest)

    def statuses(self) -> tuple[RelayStatus, ...]:
        return self._book.statuses(self._core.table.newest, self._core.now_ms())

    def settle(self) -> None:
        """What time brings: the silent go, the tree closes, looks that are due begin."""
        now_ms = self._core.now_ms()
        self._book.settle(self._core.table.newest, now_ms)
        for url, is_accused in self._book.due(now_ms):
            look = asyncio.create_task(self._look(url, is_accused=is_accused))
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)

    async def close(self) -> None:
        """End all looks."""
        for look in self._looks:
            look.cancel()
        await asyncio.gather(*self._looks, return_exceptions=True)

    @property
    def _oldest(self) -> int:
        """Version from which all that is leased can be made."""
        return min(self._core.state.manifests, default=0)

    async def _look(self, url: str, *, is_accused: bool) -> None:
        problem, lie, version = "", "", None
        try:
            async with self._gate, asyncio.timeout(LOOK_S):
                version = await self._examine(url, NUM_CHUNKS_IF_ACCUSED if is_accused else 1)
        except PeerFault as fault:
            problem = str(fault)
            lie = problem if fault.reason in LIES else ""
        except Transient as error:
            problem = f"unreachable: {error}"
        except TimeoutError:
            problem = f"unreachable: no answer in {LOOK_S:g} s"
        if problem:
            logger.log(logging.WARNING if lie else logging.INFO, "relay %s is not listed: %s", url, problem)
        self._book.looked(url, problem, self._core.now_ms(), lie=lie, version=version)

    async def _examine(self, url: str, num_chunks: int) -> int | None:
        """The newest version that a relay has; None for none yet.

        Raises:
            Transient: it does not answer.
            PeerFault: it gives what was not published, or is not published any more.
        """
        manifest = await self._servers.latest_manifest(url, -1, 0.0)
        if manifest is None:
            return None  # it has just begun, or nothing is out yet
        published = self._core.state.manifests.get(manifest.policy_version)
        if published is None:
            raise PeerFault(UNKNOWN_VERSION, f"its newest version is {manifest.policy_version}, which is not out now")
        if manifest != published:
            raise PeerFault(SPLIT_VIEW, f"its manifest of version {manifest.policy_version} is another one")
        for chunk in self._some(published, num_chunks):
            data = await self._servers.chunk(url, chunk.sha256, chunk.num_bytes)
            if await asyncio.to_thread(sha256_hex, data) != chunk.sha256:
                raise PeerFault(CHUNK_DIGEST, f"it sent other bytes for chunk {chunk.sha256[:12]}")
        return manifest.policy_version

    def _some(self, manifest: Manifest, count: int) -> Sequence[Chunk]:
        chunks = [chunk for file in manifest.promised_files for chunk in file.chunks]
        smallest = min(chunks, key=lambda chunk: chunk.num_bytes, default=None)
        others = self._dice.sample(chunks, min(count - 1, len(chunks)))
        return [] if smallest is None else [smallest, *others]
