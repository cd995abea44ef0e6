"""New versions for sampler processes of our own: from the trainer's memory into theirs.

The chain is a pool's chain, with manifests and digests, so that draws are those of a pool; it is written nowhere but
into checkpoints. Nobody outside knows a version, so a run that goes on from a checkpoint makes the versions after it
anew.
"""

from collections.abc import Mapping

from farflung.broadcast.publish import PreparedPolicy
from farflung.errors import UserError
from farflung.local.feed import LocalFeed
from farflung.model.adapter_files import WEIGHTS as ADAPTER
from farflung.model.folder import WEIGHTS_FILE
from farflung.trainer.chain import Chain
from farflung.trainer.checkpoint import Checkpoints
from farflung.trainer.policy_base import PolicyBase
from farflung.wire.manifest import Publication
from farflung.wire.pool import PoolSpec

ONE_CHUNK = 1 << 62
"""Chunks are for networks."""


class LocalPublisher(Chain):
    """Implements `trainer.ports.PolicyTarget`."""

    def __init__(
        self, pool: PoolSpec, policy_files: Mapping[str, bytes], feed: LocalFeed, checkpoints: Checkpoints
    ) -> None:
        super().__init__(pool, policy_files, ONE_CHUNK)
        self._pool = pool
        self._feed = feed
        self._checkpoints = checkpoints

    async def begin(self) -> None:
        """Nothing is to be asked of anybody."""

    async def send(self, publication: Publication, prepared: PreparedPolicy) -> None:
        names = {file.name: file.chunks[0].sha256 for file in prepared.manifest.files if file.chunks}
        if prepared.manifest.kind == "adapter":
            self._feed.announce(publication, prepared.chunks[names[ADAPTER]], base=prepared.chunks[names[WEIGHTS_FILE]])
        else:
            self._feed.announce(publication, prepared.chunks[names[WEIGHTS_FILE]])
        self.last = publication

    async def resume(self, ours: Publication, policy: PolicyBase) -> None:
        """Versions that slots are still to be sampled by come from their own checkpoints.

        Raises:
            UserError: one of them is not there any more, in deterministic mode.
        """
        self.last = ours
        version = ours.manifest.policy_version
        if self._pool.is_deterministic:
            for earlier in range(max(0, version - self._pool.max_staleness), version):
                checkpoint = self._checkpoints.load(earlier)
                if checkpoint is None:
                    raise UserError(
                        f"checkpoint {self._checkpoints.path_of(earlier)} is missing or damaged, and a deterministic "
                        f"run samples with the {self._pool.max_staleness} versions before {version}: put it back, or "
                        "give the run another name"
                    )
                weights = policy.weights_file(checkpoint.masters).data
                self._feed.announce(checkpoint.publication, weights, base=policy.base_file())
        self._feed.announce(ours, policy.weights_file().data, base=policy.base_file())

    async def finish(self) -> None:
        self._feed.finish()
