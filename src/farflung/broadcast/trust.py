"""Whether a manifest from anybody is the trainer's newest word: signature, order, chain and age. Time is passed in.

    bad_signature   not signed by the trainer                 rollback     below the newest version that is known
    wrong_pool      of another training effort                split_view   another manifest of a known version, or one
    expired         the trainer has been silent too long                   that does not follow the one before it

A relay can withhold, but every lie has a name. Two manifests of one version under the trainer's own signature are the
trainer's fault, and the reason says so.
"""

from dataclasses import dataclass, field

from farflung.errors import PeerFault
from farflung.identity.signing import check_signer, signer_of
from farflung.sharding.plan import ManifestLimits, check_manifest
from farflung.wire.manifest import Manifest

ROLLBACK, SPLIT_VIEW, WRONG_POOL, EXPIRED = "rollback", "split_view", "wrong_pool", "expired"
_REMEMBERED = 64
"""Versions whose digests are compared."""
CLOCK_SKEW_MS = 120_000
"""By how much the clocks of trainer and reader may differ."""


@dataclass(slots=True)
class ManifestTrust:
    """What one reader believes of one pool."""

    trainer: str = ""
    """Address of the trainer's key; empty = that of whoever signed the first manifest."""
    pool_digest: str = ""
    """Empty = that of the first manifest."""
    limits: ManifestLimits = field(default_factory=ManifestLimits)
    newest_version: int = -1
    _digests: dict[int, str] = field(default_factory=dict)

    def check(self, manifest: Manifest, now_ms: int) -> bool:
        """Take in a manifest; whether it is newer than all before.

        Raises:
            PeerFault: one of the reasons above, or a manifest that breaks its own rules.
        """
        check_manifest(manifest, self.limits)
        if self.trainer:
            check_signer(manifest, self.trainer)
        signer = self.trainer or signer_of(manifest)
        if self.pool_digest and manifest.pool_digest != self.pool_digest:
            raise PeerFault(WRONG_POOL, f"the manifest is of pool {manifest.pool_digest}, this is {self.pool_digest}")
        if manifest.expires_at_ms + CLOCK_SKEW_MS < now_ms:
            age_s = (now_ms - manifest.expires_at_ms) / 1000
            raise PeerFault(EXPIRED, f"version {manifest.policy_version} expired {age_s:.0f} s ago")
        self._check_chain(manifest)
        self.trainer, self.pool_digest = signer, manifest.pool_digest
        is_new = manifest.policy_version > self.newest_version
        self._remember(manifest)
        return is_new

    def _check_chain(self, manifest: Manifest) -> None:
        version, digest = manifest.policy_version, manifest.digest()
        known = self._digests.get(version)
        if known is not None and known != digest:
            raise PeerFault(SPLIT_VIEW, f"two manifests of version {version} with the trainer's signature")
        before = self._digests.get(version - 1)
        if before is not None and manifest.previous_digest != before:
            raise PeerFault(SPLIT_VIEW, f"version {version} does not follow the known version {version - 1}")
        if known is None and version < self.newest_version:
            raise PeerFault(ROLLBACK, f"version {version} is old: {self.newest_version} is known")

    def _remember(self, manifest: Manifest) -> None:
        self._digests[manifest.policy_version] = manifest.digest()
        self.newest_version = max(self.newest_version, manifest.policy_version)
        for version in [version for version in self._digests if version <= self.newest_version - _REMEMBERED]:
            del self._digests[version]
