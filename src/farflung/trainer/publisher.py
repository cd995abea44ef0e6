"""Announces the versions of a run to its coordinator, and brings the two to the same version after a restart."""

import asyncio
import logging
from collections.abc import Mapping

from msgspec.structs import replace

from farflung.api.client import CoordinatorClient
from farflung.api.errors import RefusalReason, Refused
from farflung.api.patience import Patience
from farflung.broadcast.publish import PreparedPolicy, publish
from farflung.errors import UserError
from farflung.identity.keys import NodeKey
from farflung.trainer.chain import Chain
from farflung.trainer.policy_base import PolicyBase
from farflung.wire.manifest import Publication
from farflung.wire.pool import PoolSpec

logger = logging.getLogger(__name__)


class Publisher(Chain):
    """The chain of publications of one trainer."""

    def __init__(
        self,
        client: CoordinatorClient,
        patience: Patience,
        pool: PoolSpec,
        policy_files: Mapping[str, bytes],
        chunk_bytes: int,
        *,
        key: NodeKey,
        snapshot_every: int = 1,
    ) -> None:
        super().__init__(pool, policy_files, chunk_bytes, key=key, snapshot_every=snapshot_every)
        self._client = client
        self._patience = patience
        self._is_deterministic = pool.is_deterministic
        self._published_chunks: frozenset[str] = frozenset()

    async def send(self, publication: Publication, prepared: PreparedPolicy) -> None:
        """Chunks first, manifest and batch record last; idempotent.

        Raises:
            UserError: the coordinator's store loses what is written to it, or it knows another trainer.
        """
        try:
            await self._send(publication, prepared)
        except Refused as refusal:
            if refusal.reason == RefusalReason.BAD_SIGNATURE:
                raise UserError(
                    f"the coordinator takes versions of another key ({refusal.message}): put this run's keys/trainer "
                    "back, or correct coordinator.trainer"
                ) from refusal
            if refusal.reason != RefusalReason.CHUNK_MISSING:
                raise
            logger.warning("version %d: %s; sending all of it again", publication.manifest.policy_version, refusal)
            self._published_chunks = frozenset()
            await self._send_to_an_empty_store(publication, prepared)
        self._published_chunks = frozenset(prepared.chunks)
        self.last = publication

    async def _send_to_an_empty_store(self, publication: Publication, prepared: PreparedPolicy) -> None:
        try:
            await self._send(publication, prepared)
        except Refused as refusal:
            if refusal.reason != RefusalReason.CHUNK_MISSING:
                raise
            raise UserError(
                f"the coordinator's store loses what is written to it ({refusal}): see that coordinator.store_url is "
                "there, can be written to and is not cleaned by anybody else"
            ) from refusal

    async def _send(self, publication: Publication, prepared: PreparedPolicy) -> None:
        async def put_chunk(sha256: str, data: bytes) -> None:
            await self._patience(lambda: self._client.put_chunk(sha256, data))

        async def put_manifest(_: object) -> None:
            await self._patience(lambda: self._client.publish(publication))

        await publish(prepared, put_chunk, put_manifest, already_published=self._published_chunks)

    async def begin(self) -> None:
        """A new run.

        Raises:
            UserError: the coordinator has a history.
        """
        theirs = await self._patience(self._client.last_publication)
        if theirs is not None:
            raise UserError(
                f"the coordinator has published version {theirs.manifest.policy_version} but the trainer has no "
                "checkpoint that it can read: they are of different runs; give the run another name"
            )

    async def resume(self, ours: Publication, policy: PolicyBase) -> None:
        """Bring the coordinator and a restored trainer to the same version.

            theirs == ours              nothing to do
            theirs == ours - 1          killed between checkpoint and publication: announce ours now
            theirs >  ours              killed before the next checkpoint: the next version follows theirs in the
                                        chain, made from the older weights (not in deterministic mode)
            otherwise                   of different runs

        Args:
            ours: of the checkpoint.
            policy: restored from it.

        Raises:
            UserError: the coordinator's history is not this run's, or cannot be followed deterministically.
        """
        theirs = await self._patience(self._client.last_publication)
        their_version = -1 if theirs is None else theirs.manifest.policy_version
        our_version = ours.manifest.policy_version
        if their_version == our_version - 1:
            await self._send_again(ours, theirs, policy)
        elif theirs is not None and their_version > our_version:
            if self._is_deterministic:
                raise UserError(
                    f"published is version {their_version} but the newest checkpoint that can be read is of version "
                    f"{our_version}: a deterministic run cannot make the versions between again; restore the "
                    "checkpoint, or give the run another name"
                )
            logger.warning(
                "the newest checkpoint is of version %d, published is %d: going on from the older weights",
                our_version,
                their_version,
            )
            self.last = theirs
        elif theirs is not None and _is_same_version(theirs, ours):
            self.last = theirs
            if self._snapshot_every > 1:
                self._remember((await asyncio.to_thread(policy.weights_file)).data)
        else:
            raise UserError(
                f"the coordinator's newest version is {their_version} but this run's checkpoint is of version "
                f"{our_version}: they are of different runs; give the run another name or delete its folder"
            )

    async def finish(self) -> None:
        """Tell everybody that no version follows."""
        await self._patience(self._client.finish)

    async def _send_again(self, ours: Publication, theirs: Publication | None, policy: PolicyBase) -> None:
        """The same weights after the same version, whole: what a patch would be on is not at hand any more.

        Nobody has seen the manifest in the checkpoint, so another one of the same version is no second word.
        """
        self.last = theirs
        _, prepared = await asyncio.to_thread(
            self.prepare,
            policy,
            optimizer_step=ours.manifest.optimizer_step,
            now_ms=ours.manifest.published_at_ms,
            items=None,
            drops=(),
            plan=ours.curriculum,
        )
        again = replace(ours, manifest=prepared.manifest)
        if not _is_same_version(again, ours):
            raise UserError(
                f"the checkpoint of version {ours.manifest.policy_version} does not continue the coordinator's version "
                f"{ours.manifest.policy_version - 1}: they are of different runs or settings; give the run another name"
            )
        await self.send(again, prepared)


def _is_same_version(one: Publication, other: Publication) -> bool:
    """The same policy after the same version, made of the same batch; one may be whole and the other a patch."""
    mine, theirs = one.manifest, other.manifest
    return (
        (mine.pool_digest, mine.policy_version, mine.policy_digest, mine.previous_digest)
        == (theirs.pool_digest, theirs.policy_version, theirs.policy_digest, theirs.previous_digest)
        and one.batch == other.batch
        and one.curriculum == other.curriculum
    )
