"""Whether a manifest from anybody is the trainer's newest word: signature, order, chain and age. Time is passed in.

    bad_signature   not signed by the trainer                 rollback     below the newest version that is known
    wrong_pool      of another training effort                split_view   another manifest of a known version, or one
    expired         the trainer has been silent too long                   that does not follow the one before it

A relay can withhold, but every lie has a name. Two manifests of one version under the trainer's own signature are the
trainer's fault, and the reason says so.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from farflung.errors import PeerFault
from farflung.identity.signing import check_signer, signer_of
from farflung.sharding.plan import ManifestLimits, check_manifest
from farflung.wire.manifest import Manifest

logger = logging.getLogger(__name__)

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
    _previous_of: dict[int, str] = field(default_factory=dict)

    def check(self, manifest: Manifest, now_ms: int) -> bool:
        """Take in a manifest that was given as the newest; whether it is newer than all before.

        Raises:
            PeerFault: one of the reasons above, or a manifest that breaks its own rules.
        """
        check_fresh(manifest, now_ms)
        return self.check_current(manifest)

    def check_current(self, manifest: Manifest) -> bool:
        """The same whatever its age: for whoever knows from elsewhere that it is the newest."""
        signer = self._check_source(manifest)
        version = manifest.policy_version
        self._check_chain(manifest)
        if version < self.newest_version and version not in self._digests:
            raise PeerFault(ROLLBACK, f"version {version} is old: {self.newest_version} is known")
        return self._take(manifest, signer)

    def check_named(self, manifest: Manifest, version: int) -> None:
        """Take in the manifest of a version that was asked for by its number, new or old. Raises as `check`."""
        signer = self._check_source(manifest)
        if manifest.policy_version != version:
            raise PeerFault(ROLLBACK, f"version {manifest.policy_version} was given for {version}")
        self._check_chain(manifest)
        self._take(manifest, signer)

    def _check_source(self, manifest: Manifest) -> str:
        check_manifest(manifest, self.limits)
        if self.trainer:
            check_signer(manifest, self.trainer)
        signer = self.trainer or signer_of(manifest)
        if self.pool_digest and manifest.pool_digest != self.pool_digest:
            raise PeerFault(WRONG_POOL, f"the manifest is of pool {manifest.pool_digest}, this is {self.pool_digest}")
        return signer

    def _take(self, manifest: Manifest, signer: str) -> bool:
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
        after = self._previous_of.get(version + 1)
        if after is not None and after != digest:
            raise PeerFault(SPLIT_VIEW, f"the known version {version + 1} does not follow this version {version}")

    def _remember(self, manifest: Manifest) -> None:
        self._digests[manifest.policy_version] = manifest.digest()
        self._previous_of[manifest.policy_version] = manifest.previous_digest
        self.newest_version = max(self.newest_version, manifest.policy_version)
        for version in [version for version in self._digests if version <= self.newest_version - _REMEMBERED]:
            del self._digests[version], self._previous_of[version]


def check_before(manifest: Manifest, newer: Manifest) -> None:
    """Raises PeerFault unless a manifest is the one that a newer one, which is believed, follows."""
    if manifest.policy_version != newer.policy_version - 1 or manifest.digest() != newer.previous_digest:
        raise PeerFault(
            SPLIT_VIEW,
            f"the manifest that was given for version {newer.policy_version - 1} is not what version "
            f"{newer.policy_version} follows",
        )


def check_fresh(manifest: Manifest, now_ms: int) -> None:
    """Raises PeerFault: whoever gives it as the newest withholds newer ones, or the trainer has fallen silent."""
    if manifest.expires_at_ms + CLOCK_SKEW_MS < now_ms:
        age_s = (now_ms - manifest.expires_at_ms) / 1000
        raise PeerFault(EXPIRED, f"version {manifest.policy_version} expired {age_s:.0f} s ago")


class Guard:
    """Turns away manifests that are not to be believed, and says so in the log and to whoever reports it."""

    def __init__(self, trust: ManifestTrust, report: Callable[[str], None]) -> None:
        """
        Args:
            report: told the reason of the last fault; empty = the last manifest was sound.
        """
        self.trust = trust
        self._report = report

    def admits(self, manifest: Manifest, now_ms: int) -> bool:
        """Of the newest version, from the coordinator, which leases by it.

        An old one is reported and let pass: a run that was stopped for days and goes on begins with one, and would
        otherwise wait for itself. Relays, which could freeze their readers with one, are held to it.
        """
        try:
            self.trust.check_current(manifest)
            self._report("")
            check_fresh(manifest, now_ms)
        except PeerFault as fault:
            self._note(manifest, fault)
            return fault.reason == EXPIRED
        return True

    def admits_named(self, manifest: Manifest, version: int) -> bool:
        """Of a version that was asked for by its number."""
        try:
            self.trust.check_named(manifest, version)
        except PeerFault as fault:
            self._note(manifest, fault)
            return False
        return True

    def fault(self, fault: PeerFault) -> None:
        """Something else that the trainer signed is not as it should be."""
        self._report(fault.reason)

    def _note(self, manifest: Manifest, fault: PeerFault) -> None:
        logger.warning("version %d is not to be believed: %s", manifest.policy_version, fault)
        self._report(fault.reason)
