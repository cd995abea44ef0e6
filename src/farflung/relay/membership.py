"""A relay as part of a pool: it says that it is there, and is told whom to fetch from and what to keep.

    every `heartbeat_s`   what it has, whom it caught lying  ->  coordinator  ->  its parent, the parent's parent, ...

A coordinator that is away changes nothing: the relay goes on with whom it has. Does not know chunks.
"""

import asyncio
import logging
from collections.abc import Callable

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.errors import FarflungError
from farflung.wire.relay import MAX_COMPLAINTS, RelayOffer, Sources

logger = logging.getLogger(__name__)

OnSources = Callable[[Sources], None]


class Membership:
    """One relay's place in the tree."""

    def __init__(
        self,
        client: CoordinatorClient,
        url: str,
        *,
        upload_bytes_per_s: int,
        newest_version: Callable[[], int],
        liars: Callable[[], tuple[str, ...]],
        on_sources: OnSources,
    ) -> None:
        """
        Args:
            url: where others reach this relay.
            on_sources: told whenever the coordinator answers.
        """
        self._client = client
        self._url = url
        self._upload_bytes_per_s = upload_bytes_per_s
        self._newest_version = newest_version
        self._liars = liars
        self._on_sources = on_sources
        self._refusal: str | None = None

    async def run(self, heartbeat_s: float) -> None:
        """Until the run is over."""
        while not self._client.is_finished:
            await self.offer()
            await asyncio.sleep(heartbeat_s)
        logger.info("the run is over")

    async def offer(self) -> None:
        """One sign of life."""
        offer = RelayOffer(
            relay=self._client.node,
            url=self._url,
            upload_bytes_per_s=self._upload_bytes_per_s,
            policy_version=self._newest_version(),
            liars=self._liars()[:MAX_COMPLAINTS],
        )
        try:
            sources = await self._client.offer_relay(offer)
        except Refused as refusal:
            self._note(str(refusal))
        except FarflungError as error:
            logger.info("the coordinator does not answer: %s", error)
        else:
            self._note(sources.refusal)
            self._on_sources(sources)

    def _note(self, refusal: str) -> None:
        """Tell the operator, once for each change."""
        if refusal == self._refusal:
            return
        is_first, self._refusal = self._refusal is None, refusal
        if refusal:
            level = logging.INFO if is_first else logging.WARNING  # nobody is listed before a first look
            logger.log(level, "not listed as %s: %s", self._url, refusal)
        else:
            logger.info("listed as %s", self._url)
