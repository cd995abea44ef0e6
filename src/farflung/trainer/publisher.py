"""From weights to a published version: policy files, chunks, manifest, batch record."""

import asyncio
import logging
from collections.abc import Mapping

from farflung.api.client import CoordinatorClient
from farflung.api.errors import RefusalReason, Refused
from farflung.api.patience import Patience
from farflung.broadcast.publish import PreparedPolicy, prepare, publish
from farflung.errors import UserError
from farflung.model.weights import to_safetensors_bytes
from farflung.trainer.policy import Policy
from farflung.wire.batch import BatchItem, BatchRecord, SlotDrop
from farflung.wire.manifest import Publication, TensorEntry
from farflung.wire.pool import PoolSpec

logger = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
EXPIRES_AFTER_MS = 24 * 3600 * 1000
"""A worker must not go on with a version whose trainer has been silent for a day."""


class Publisher:
    """The chain of publications of one trainer."""

    def __init__(
        self,
        client: CoordinatorClient,
        patience: Patience,
        pool: PoolSpec,
        policy_files: Mapping[str, bytes],
        chunk_bytes: int,
    ) -> None:
        self._client = client
        self._patience = patience
        self._pool_digest = pool.digest()
        self._is_deterministic = pool.is_deterministic
        self._policy_files = dict(policy_files)
        self._chunk_bytes = chunk_bytes
        self._published_chunks: frozenset[str] = frozenset()
        self.last: Publication | None = None

    @property
    def policy_version(self) -> int:
        """Of the newest publication; -1 before the first."""
        return -1 if self.last is None else self.last.manifest.policy_version

    def prepare(
        self,
        policy: Policy,
        *,
        optimizer_step: int,
        now_ms: int,
        items: tuple[BatchItem, ...] | None,
        drops: tuple[SlotDrop, ...],
    ) -> tuple[Publication, PreparedPolicy]:
        """The next version, ready to be sent; `items` is None for the first, which no batch made."""
        state = policy.published_state()
        files = {**self._policy_files, WEIGHTS: to_safetensors_bytes(state)}
        prepared = prepare(
            files,
            tensors=[TensorEntry(name=name, dtype="BF16", shape=tuple(tensor.shape)) for name, tensor in state.items()],
            pool_digest=self._pool_digest,
            policy_version=self.policy_version + 1,
            optimizer_step=optimizer_step,
            published_at_ms=now_ms,
            expires_at_ms=now_ms + EXPIRES_AFTER_MS,
            previous_digest="" if self.last is None else self.last.manifest.digest(),
            chunk_bytes=self._chunk_bytes,
        )
        batch = None if items is None else self._batch_record(optimizer_step, items, drops)
        return Publication(manifest=prepared.manifest, batch=batch), prepared

    async def send(self, publication: Publication, prepared: PreparedPolicy) -> None:
        """Chunks first, manifest and batch record last; idempotent.

        Raises:
            UserError: the coordinator's store loses what is written to it.
        """
        try:
            await self._send(publication, prepared)
        except Refused as refusal:
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

    async def resume(self, ours: Publication, policy: Policy) -> None:
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
        elif theirs is not None and theirs.manifest.digest() == ours.manifest.digest():
            self.last = theirs
        else:
            raise UserError(
                f"the coordinator's newest version is {their_version} but this run's checkpoint is of version "
                f"{our_version}: they are of different runs; give the run another name or delete its folder"
            )

    async def finish(self) -> None:
        """Tell everybody that no version follows."""
        await self._patience(self._client.finish)

    async def _send_again(self, ours: Publication, theirs: Publication | None, policy: Policy) -> None:
        """The same weights after the same version give the same chunks and the same manifest."""
        self.last = theirs
        _, prepared = await asyncio.to_thread(
            self.prepare,
            policy,
            optimizer_step=ours.manifest.optimizer_step,
            now_ms=ours.manifest.published_at_ms,
            items=None,
            drops=(),
        )
        if prepared.manifest.digest() != ours.manifest.digest():
            raise UserError(
                f"the checkpoint of version {ours.manifest.policy_version} does not continue the coordinator's version "
                f"{ours.manifest.policy_version - 1}: they are of different runs or settings; give the run another name"
            )
        await self.send(ours, prepared)

    def _batch_record(
        self, optimizer_step: int, items: tuple[BatchItem, ...], drops: tuple[SlotDrop, ...]
    ) -> BatchRecord:
        previous = self.last.batch if self.last is not None else None
        return BatchRecord(
            pool_digest=self._pool_digest,
            policy_version=self.policy_version + 1,
            optimizer_step=optimizer_step,
            items=items,
            drops=drops,
            previous_digest="" if previous is None else previous.digest(),
        )
