"""The trainer's desk: chunks and versions in, outcomes out."""

import asyncio
from pathlib import Path

from farflung.api.errors import RefusalReason, Refused
from farflung.api.records import OpenSlots
from farflung.coordinator.core import Core
from farflung.coordinator.journal import Published
from farflung.coordinator.signals import Topic
from farflung.errors import PeerFault
from farflung.identity.signing import check_signer, signer_of
from farflung.slots.curriculum import plan_problem
from farflung.slots.steps import batch_problem
from farflung.wire.batch import BatchRecord, SlotOutcome
from farflung.wire.canonical import sha256_hex
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.manifest import Manifest, Publication, policy_digest


class PublishingDesk:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def latest_manifest(self, newer_than: int, wait_s: float) -> Manifest | None:
        def find() -> Manifest | None:
            newest = self._core.table.newest
            return self._core.state.manifests[newest] if newest > newer_than else None

        return await self._core.poll(Topic.VERSIONS, find, wait_s)

    async def manifest(self, version: int) -> Manifest:
        manifest = self._core.state.manifests.get(version)
        await self._core.committed()
        if manifest is None:
            raise Refused(RefusalReason.NOT_FOUND, f"version {version} was not published, or is not kept any more")
        return manifest

    async def curriculum(self, digest: str) -> CurriculumPlan:
        plan = self._core.state.plans.get(digest)
        await self._core.committed()
        if plan is None:
            raise Refused(RefusalReason.NOT_FOUND, f"plan {digest} was not published, or is not kept any more")
        return plan

    async def last_publication(self) -> Publication | None:
        publication = self._core.state.last_publication
        await self._core.committed()
        return publication

    async def put_chunk(self, sha256: str, data: bytes | bytearray) -> None:
        found = await asyncio.to_thread(sha256_hex, data)
        if found != sha256:
            raise Refused(RefusalReason.DIGEST_MISMATCH, f"chunk {sha256} has sha256 {found}")
        await self._core.files.put_chunk(sha256, data, self._core.table.newest)

    async def chunk_size(self, sha256: str) -> int:
        num_bytes = await self._core.files.chunk_size(sha256)
        if num_bytes is None:
            raise Refused(RefusalReason.NOT_FOUND, f"chunk {sha256} is not there, or not any more")
        return num_bytes

    def chunk_path(self, sha256: str) -> Path | None:
        """Where a chunk lies if it is there and a file of this machine."""
        return self._core.files.chunk_path(sha256)

    async def get_chunk(self, sha256: str) -> bytes:
        try:
            return await self._core.files.get_chunk(sha256)
        except KeyError:
            raise Refused(RefusalReason.NOT_FOUND, f"chunk {sha256} is not there, or not any more") from None

    async def publish(self, publication: Publication) -> None:
        """Take a version whose chunks are all there, with the batch that made it; whole or not at all."""
        async with self._core.files.versions:
            if not self._is_known(publication):
                self._check_manifest(publication.manifest)
                self._check_batch(publication)
                self._check_curriculum(publication)
                missing = await self._core.files.missing_chunk(publication.manifest)
                if missing is not None:
                    raise Refused(RefusalReason.CHUNK_MISSING, f"chunk {missing} is not there in the announced size")
                self._core.step(Published(publication=publication))
                self._core.switchboard.ring(Topic.VERSIONS)
                self._core.has_unused_chunks = True
            await self._core.committed()

    async def outcomes(self, after: int, limit: int, wait_s: float) -> tuple[SlotOutcome, ...]:
        found = await self._core.poll(Topic.OUTCOMES, lambda: self._core.table.outcomes(after, limit) or None, wait_s)
        return tuple(found or ())

    async def open_slots(self) -> OpenSlots:
        table = self._core.table
        found = OpenSlots(slots=tuple(table.open_slots()), next_slot=table.next_slot)
        await self._core.committed()
        return found

    def _is_known(self, publication: Publication) -> bool:
        """Whether exactly this was published before; of older versions only the manifest is remembered."""
        last = self._core.state.last_publication
        if last is not None and last.manifest.policy_version == publication.manifest.policy_version:
            return last == publication
        return self._core.state.manifests.get(publication.manifest.policy_version) == publication.manifest

    def _check_manifest(self, manifest: Manifest) -> None:
        state = self._core.state
        self._check_pool(manifest.pool_digest)
        last = None if state.last_publication is None else state.last_publication.manifest
        expected = 0 if last is None else last.policy_version + 1
        if manifest.policy_version != expected:
            raise Refused(
                RefusalReason.VERSION_ORDER, f"version {manifest.policy_version} was announced, {expected} is next"
            )
        previous = "" if last is None else last.digest()
        if manifest.previous_digest != previous:
            raise Refused(
                RefusalReason.VERSION_ORDER,
                f"version {expected} follows manifest {manifest.previous_digest!r}, the last one is {previous!r}",
            )
        self._check_signer(manifest)
        found = policy_digest(manifest.files)
        if manifest.policy_digest != found:
            raise Refused(
                RefusalReason.DIGEST_MISMATCH, f"policy_digest is {manifest.policy_digest}, its files make {found}"
            )

    def _check_signer(self, manifest: Manifest) -> None:
        """The trainer is whoever is configured, or else whoever signed the version before: the first one under the
        trainer's token decides."""
        last = self._core.state.last_publication
        pinned = self._core.state.rules.trainer or self._core.config.trainer
        trainer = pinned or ("" if last is None else signer_of(last.manifest))
        try:
            check_signer(manifest, trainer or signer_of(manifest))
        except PeerFault as fault:
            raise Refused(RefusalReason.BAD_SIGNATURE, fault.detail) from fault

    def _check_batch(self, publication: Publication) -> None:
        batch = publication.batch
        if batch is None:
            return
        self._check_pool(batch.pool_digest)
        try:
            check_signer(batch, signer_of(publication.manifest))
        except PeerFault as fault:
            raise Refused(RefusalReason.BAD_SIGNATURE, fault.detail) from fault
        if batch.policy_version != publication.manifest.policy_version:
            raise Refused(
                RefusalReason.BATCH_LINK,
                f"the batch made version {batch.policy_version}, the manifest is {publication.manifest.policy_version}",
            )
        previous = self._previous_batch()
        expected = "" if previous is None else previous.digest()
        if batch.previous_digest != expected:
            raise Refused(
                RefusalReason.BATCH_LINK,
                f"the batch follows batch {batch.previous_digest!r}, the version before has {expected!r}",
            )
        problem = batch_problem(self._core.table, batch)
        if problem is not None:
            raise Refused(RefusalReason.BATCH_LINK, problem)

    def _check_curriculum(self, publication: Publication) -> None:
        """The plan that the manifest names comes with it, and is one for this pool."""
        named, plan = publication.manifest.curriculum_digest, publication.curriculum
        found = "" if plan is None else plan.digest()
        if found != named:
            raise Refused(RefusalReason.CURRICULUM, f"the plan is {found!r}, the manifest names {named!r}")
        if plan is None:
            return
        self._check_pool(plan.pool_digest)
        problem = plan_problem(plan, self._core.state.rules.environment)
        if problem is not None:
            raise Refused(RefusalReason.CURRICULUM, problem)

    def _previous_batch(self) -> BatchRecord | None:
        last = self._core.state.last_publication
        return None if last is None else last.batch

    def _check_pool(self, pool_digest: str) -> None:
        if pool_digest != self._core.state.pool_digest:
            raise Refused(RefusalReason.WRONG_POOL, f"the publication is for pool {pool_digest}")
