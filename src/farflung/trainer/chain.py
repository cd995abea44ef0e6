"""The chain of a run's versions: from weights to policy files, manifest and batch record. No network.

Who announces them, and to whom, is the publisher's business (`trainer.publisher`, `local.publisher`).
"""

from collections.abc import Mapping

from farflung.broadcast.publish import CutFiles, PreparedPolicy, cut_files, prepare
from farflung.model.folder import WEIGHTS_FILE
from farflung.trainer.policy_base import PolicyBase
from farflung.wire.batch import BatchItem, BatchRecord, SlotDrop
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.manifest import Publication, TensorEntry
from farflung.wire.pool import PoolSpec

EXPIRES_AFTER_MS = 24 * 3600 * 1000
"""A worker must not go on with a version whose trainer has been silent for a day."""


class Chain:
    """Each version names the one before."""

    def __init__(self, pool: PoolSpec, policy_files: Mapping[str, bytes], chunk_bytes: int) -> None:
        self._pool_digest = pool.digest()
        self._policy_files = dict(policy_files)
        self._chunk_bytes = chunk_bytes
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
            base=self._base_of(policy),
        )
        batch = None if items is None else self._batch_record(optimizer_step, items, drops)
        return Publication(manifest=prepared.manifest, batch=batch, curriculum=plan), prepared

    def _base_of(self, policy: PolicyBase) -> CutFiles | None:
        """Cut once: it is the same for every version."""
        if self._base is None and (base := policy.base_file()) is not None:
            self._base = cut_files({WEIGHTS_FILE: base}, self._chunk_bytes)
        return self._base

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
