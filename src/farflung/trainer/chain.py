"""The chain of a run's versions: from weights to policy files, manifest and batch record. No network.

Who announces them, and to whom, is the publisher's business (`trainer.publisher`, `local.publisher`).
"""

from collections.abc import Mapping

from farflung.broadcast.publish import CutFiles, PatchOffer, PreparedPolicy, cut_files, prepare
from farflung.identity.keys import NodeKey
from farflung.identity.signing import sign
from farflung.model.folder import WEIGHTS_FILE
from farflung.sharding.patch_build import build_patch
from farflung.trainer.policy_base import PolicyBase, WeightsFile
from farflung.wire.batch import BatchItem, BatchRecord, SlotDrop
from farflung.wire.canonical import sha256_hex
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.manifest import Publication, TensorEntry
from farflung.wire.pool import PoolSpec

EXPIRES_AFTER_MS = 24 * 3600 * 1000
"""A worker must not go on with a version whose trainer has been silent for a day."""


class Chain:
    """Each version names the one before."""

    def __init__(
        self,
        pool: PoolSpec,
        policy_files: Mapping[str, bytes],
        chunk_bytes: int,
        *,
        key: NodeKey | None = None,
        snapshot_every: int = 1,
    ) -> None:
        """
        Args:
            key: what signs manifests and batch records; None = they are for nobody outside.
            snapshot_every: versions divisible by it are published whole, those between as patches where these are
                smaller.
        """
        self._pool_digest = pool.digest()
        self._policy_files = dict(policy_files)
        self._chunk_bytes = chunk_bytes
        self._key = key
        self._snapshot_every = snapshot_every
        self._weights: dict[str, bytes] = {}  # sha256 -> the newest weights file, if patches are made
        self._base: CutFiles | None = None
        self.last: Publication | None = None
        """The newest version that is out."""

    @property
    def policy_version(self) -> int:
        """Of the newest publication; -1 before the first."""
        return -1 if self.last is None else self.last.manifest.policy_version

    def prepare(
        self,
        policy: PolicyBase,
        *,
        optimizer_step: int,
        now_ms: int,
        items: tuple[BatchItem, ...] | None,
        drops: tuple[SlotDrop, ...],
        plan: CurriculumPlan | None = None,
    ) -> tuple[Publication, PreparedPolicy]:
        """The next version, ready to be sent; `items` is None for the first, which no batch made.

        Args:
            plan: what the tasks of the version's slots follow from, beside the pool's rules.
        """
        weights = policy.weights_file()
        base = self._base_of(policy)
        prepared = prepare(
            {**self._policy_files, weights.name: weights.data},
            tensors=[
                TensorEntry(name=name, dtype="BF16", shape=tuple(tensor.shape))
                for name, tensor in weights.state.items()
            ],
            pool_digest=self._pool_digest,
            policy_version=self.policy_version + 1,
            optimizer_step=optimizer_step,
            published_at_ms=now_ms,
            expires_at_ms=now_ms + EXPIRES_AFTER_MS,
            previous_digest="" if self.last is None else self.last.manifest.digest(),
            curriculum_digest="" if plan is None else plan.digest(),
            chunk_bytes=self._chunk_bytes,
            base=base,
            patch=None if base is not None else self._patch(weights),
        )
        if self._key is not None:
            prepared = PreparedPolicy(manifest=sign(prepared.manifest, self._key), chunks=prepared.chunks)
        batch = None if items is None else self._batch_record(optimizer_step, items, drops)
        return Publication(manifest=prepared.manifest, batch=batch, curriculum=plan), prepared

    def _patch(self, weights: WeightsFile) -> PatchOffer | None:
        """On the weights of the version before, if they are at hand and the patch is smaller than a snapshot."""
        if self._snapshot_every == 1:
            return None
        base_sha256 = self._published_sha256(weights.name)
        base = self._weights.get(base_sha256)
        self._remember(weights.data)
        data = None if base is None else build_patch(base, weights.data)
        if data is None or len(data) >= len(weights.data):
            return None
        is_alone = (self.policy_version + 1) % self._snapshot_every != 0
        return PatchOffer(file=weights.name, base_sha256=base_sha256, data=data, is_alone=is_alone)

    def _published_sha256(self, name: str) -> str:
        """Of a file of the newest version; empty if there is none."""
        files = () if self.last is None else self.last.manifest.files
        return next((file.sha256 for file in files if file.name == name), "")

    def _remember(self, weights: bytes) -> None:
        """The next patch may be on these."""
        self._weights = {sha256_hex(weights): weights}

    def _base_of(self, policy: PolicyBase) -> CutFiles | None:
        """Cut once: it is the same for every version."""
        if self._base is None and (base := policy.base_file()) is not None:
            self._base = cut_files({WEIGHTS_FILE: base}, self._chunk_bytes)
        return self._base

    def _batch_record(
        self, optimizer_step: int, items: tuple[BatchItem, ...], drops: tuple[SlotDrop, ...]
    ) -> BatchRecord:
        previous = self.last.batch if self.last is not None else None
        record = BatchRecord(
            pool_digest=self._pool_digest,
            policy_version=self.policy_version + 1,
            optimizer_step=optimizer_step,
            items=items,
            drops=drops,
            previous_digest="" if previous is None else previous.digest(),
        )
        return record if self._key is None else sign(record, self._key)
