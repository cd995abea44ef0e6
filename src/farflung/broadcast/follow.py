"""Getting version after version the cheapest way: by patches on the weights that are held, or by a snapshot first.

    held version --patch--> ... --patch--> wanted version
    snapshot     --patch--> ... --patch--> wanted version        a late joiner, or one that is far behind

Old manifests are believed because a newer one, which the caller has checked, names their digest. Every file that a
patch makes is hashed whole and compared with the manifest of its version before anybody sees it. Memory: the weights
file, and a second time while a patch is applied. Does not know servers, signatures or what the weights mean.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from farflung.broadcast.fetch import PolicyFetcher
from farflung.broadcast.fetched import FetchedPolicy, HeldWeights, PatchStep
from farflung.broadcast.trust import check_before
from farflung.errors import PeerFault, Transient
from farflung.sharding.patch_apply import TensorChange, apply_patch
from farflung.sharding.patch_format import read_patch
from farflung.sharding.plan import check_manifest
from farflung.sharding.route import Route, VersionOffer, cheapest
from farflung.wire.canonical import MALFORMED_RECORD
from farflung.wire.manifest import Manifest, ManifestFile

logger = logging.getLogger(__name__)

GetManifest = Callable[[int], Awaitable[Manifest | None]]
"""The manifest of an old version, unchecked; None if nobody has it any more."""
OnFault = Callable[[PeerFault], None]

MAX_CHAIN = 1024
"""Versions that are looked back at most."""
REMEMBERED_SHARE = 1 / 16
"""Of the weights' bytes: how many changed elements are remembered. Positions take 8 bytes each."""


class PolicyFollower:
    """Follows the versions of one run."""

    def __init__(
        self,
        fetcher: PolicyFetcher,
        get_manifest: GetManifest,
        *,
        weights_name: str,
        on_fault: OnFault = lambda _fault: None,
    ) -> None:
        """
        Args:
            weights_name: the file that patches are on.
            on_fault: told of a patch that the trainer signed and that does not make what its manifest says.
        """
        self._fetcher = fetcher
        self._get_manifest = get_manifest
        self._weights_name = weights_name
        self._on_fault = on_fault
        self._held: HeldWeights | None = None
        self._broken: set[str] = set()
        """sha256 of patches that do not make what they should."""
        self._one_at_a_time = asyncio.Lock()

    async def fetch(self, manifest: Manifest) -> FetchedPolicy:
        """All files of a version whose manifest the caller has checked.

        Raises:
            PeerFault: a manifest breaks its rules, or no try gave a chunk's true bytes.
            Transient: a chunk stayed out of reach, or no way leads to this version any more.
        """
        if manifest.kind == "adapter" or self._weights_name not in {file.name for file in manifest.files}:
            return FetchedPolicy(manifest=manifest, files=await self._fetcher.fetch(manifest))
        others = frozenset(file.name for file in manifest.files) - {self._weights_name}
        async with self._one_at_a_time:
            files = await self._fetcher.fetch(manifest, others)
            weights = await self._reach(manifest)
        return FetchedPolicy(manifest=manifest, files=files, weights=weights)

    async def _reach(self, manifest: Manifest) -> HeldWeights:
        while self._held is None or self._held.policy_version != manifest.policy_version:
            chain = await self._chain(manifest)
            route = cheapest(
                {version: self._offer(each) for version, each in chain.items()},
                have=self._have,
                want=manifest.policy_version,
            )
            if route is None:
                raise Transient(
                    f"no patches lead from version {self._have} to {manifest.policy_version} and no snapshot is near: "
                    "waiting for the next snapshot"
                )
            await self._go(route, chain)
        return self._held

    @property
    def _have(self) -> int | None:
        return None if self._held is None else self._held.policy_version

    def _offer(self, manifest: Manifest) -> VersionOffer:
        patch = manifest.patch
        is_usable = patch is not None and patch.content.sha256 not in self._broken
        return VersionOffer(
            patch_bytes=patch.content.num_bytes if patch is not None and is_usable else None,
            snapshot_bytes=None if manifest.kind == "patch" else self._weights_of(manifest).num_bytes,
        )

    async def _chain(self, manifest: Manifest) -> dict[int, Manifest]:
        """The wanted version and those before it, as far back as they may be worth going."""
        chain: dict[int, Manifest] = {}
        patch_bytes, cheapest_snapshot = 0, float("inf")
        while True:
            version, offer = manifest.policy_version, self._offer(manifest)
            chain[version] = manifest
            if offer.snapshot_bytes is not None:
                cheapest_snapshot = min(cheapest_snapshot, patch_bytes + offer.snapshot_bytes)
            is_end = offer.snapshot_bytes is not None and (self._have is None or self._have >= version)
            if is_end or offer.patch_bytes is None or version - 1 == self._have or len(chain) == MAX_CHAIN:
                return chain
            patch_bytes += offer.patch_bytes
            before = await self._get_manifest(version - 1) if patch_bytes < cheapest_snapshot else None
            if before is None:
                return chain
            check_manifest(before, self._fetcher.limits)
            check_before(before, manifest)
            manifest = before

    async def _go(self, route: Route, chain: dict[int, Manifest]) -> None:
        """What was reached stays, if a later part of the way fails."""
        if route.snapshot is not None:
            file = self._weights_of(chain[route.snapshot])
            files = await self._fetcher.fetch_files([file])
            self._held = HeldWeights(
                policy_version=route.snapshot, sha256=file.sha256, data=bytearray(files[file.name])
            )
        if route.snapshot is not None or len(route.patches) > 1:
            logger.info("version %s, patches %s: %d bytes", route.snapshot, list(route.patches), route.num_bytes)
        for version in route.patches:
            if not await self._apply(chain[version]):
                return

    async def _apply(self, manifest: Manifest) -> bool:
        """Go on by one version; False if its patch is broken."""
        held, described = self._held, manifest.patch
        assert held is not None
        assert described is not None
        patch = (await self._fetcher.fetch_files([described.content]))[described.content.name]
        try:
            data, changes = await asyncio.to_thread(_patched, held, patch, self._weights_of(manifest))
        except PeerFault as fault:
            self._broken.add(described.content.sha256)
            logger.warning("the trainer's patch for version %d is broken: %s", manifest.policy_version, fault)
            self._on_fault(fault)
            return False
        step = PatchStep(manifest.policy_version, changes)
        self._held = HeldWeights(
            policy_version=manifest.policy_version,
            sha256=self._weights_of(manifest).sha256,
            data=data,
            steps=_as_many_as_are_worth_it((*held.steps, step), len(data)),
        )
        return True

    def _weights_of(self, manifest: Manifest) -> ManifestFile:
        for file in manifest.files:
            if file.name == self._weights_name:
                return file
        raise PeerFault(MALFORMED_RECORD, f"version {manifest.policy_version} has no file {self._weights_name}")


def _patched(held: HeldWeights, patch: bytes, result: ManifestFile) -> tuple[bytearray, list[TensorChange]]:
    """Raises PeerFault unless the patch makes the file that the manifest describes."""
    header, _ = read_patch(patch)
    if header.result_sha256 != result.sha256:
        raise PeerFault(MALFORMED_RECORD, f"the patch makes {header.result_sha256}, the manifest says {result.sha256}")
    data = bytearray(held.data)
    return data, apply_patch(data, patch, base_sha256=held.sha256)


def _as_many_as_are_worth_it(steps: tuple[PatchStep, ...], num_bytes: int) -> tuple[PatchStep, ...]:
    """The newest steps whose positions do not take more memory than is saved by them."""
    room = num_bytes * REMEMBERED_SHARE
    for start in range(len(steps) - 1, -1, -1):
        room -= steps[start].num_changed
        if room < 0:
            return steps[start + 1 :]
    return steps
