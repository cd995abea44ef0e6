"""Versions held against what their trainer signed, from the manifests down to the files that patches make.

Nothing is repaired and nothing is asked for again: every fault is one finding. Memory: the weights file, and a second
time while a patch is applied. Does not know where chunks lie (the caller passes what reads one) or what weights mean.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from farflung.broadcast.trust import SPLIT_VIEW, check_before
from farflung.errors import PeerFault
from farflung.identity.signing import check_signer
from farflung.sharding.findings import MISSING, Finding, GetChunk, read_file, table_findings, whole_findings
from farflung.sharding.patch_apply import apply_patch
from farflung.sharding.plan import ManifestLimits, check_manifest
from farflung.wire.manifest import Manifest, WeightsPatch

LIMITS = ManifestLimits()


@dataclass(slots=True, eq=False)
class _Weights:
    """The newest weights file that was found true."""

    version: int = -1
    sha256: str = ""
    data: bytearray | None = None


def manifest_findings(
    manifest: Manifest, before: Manifest | None, trainer: str, limits: ManifestLimits
) -> list[Finding]:
    """Signature, rules and place in the chain.

    Args:
        before: of the version before, None if it is not at hand.
        trainer: address of the key that must have signed.
    """
    findings: list[Finding] = []

    def check(where: str, rule: Callable[[], None]) -> None:
        try:
            rule()
        except PeerFault as fault:
            version, detail = manifest.policy_version, fault.detail
            findings.append(Finding(version=version, where=where, reason=fault.reason, detail=detail))

    check("manifest", lambda: check_signer(manifest, trainer))
    check("manifest", lambda: check_manifest(manifest, limits))
    if before is not None:
        check("chain", lambda: check_before(before, manifest))
    return findings


class Verifier:
    """Goes through the versions of one run, oldest first."""

    def __init__(
        self,
        manifests: Mapping[int, Manifest],
        trainer: str,
        get_chunk: GetChunk,
        weights_name: str,
        *,
        limits: ManifestLimits = LIMITS,
    ) -> None:
        """
        Args:
            manifests: by the version that they were given for.
            weights_name: the file that patches are on and that the table of tensors describes.
        """
        self._manifests = manifests
        self._trainer = trainer
        self._get_chunk = get_chunk
        self._weights_name = weights_name
        self._limits = limits
        self._weights = _Weights()
        self.num_files = 0
        """Found true, those that patches make among them."""
        self.unchecked_patches: list[int] = []
        """Versions that came whole beside a patch on a version that is not at hand."""

    @property
    def weights(self) -> bytearray | None:
        """The weights file of the newest version whose own was found true."""
        return self._weights.data

    def findings(self) -> Iterator[Finding]:
        """Everything that is wrong."""
        for version, manifest in sorted(self._manifests.items()):
            if manifest.policy_version != version:
                detail = f"it is of version {manifest.policy_version}"
                yield Finding(version=version, where="manifest", reason=SPLIT_VIEW, detail=detail)
                continue
            before = self._manifests.get(version - 1)
            found = manifest_findings(manifest, before, self._trainer, self._limits)
            yield from found
            if all(finding.where == "chain" for finding in found):
                yield from self._content(manifest)

    def _content(self, manifest: Manifest) -> Iterator[Finding]:
        version, patch = manifest.policy_version, manifest.patch
        whole: bytearray | None = None
        patch_data: bytearray | None = None
        for file in manifest.promised_files:
            read = read_file(version, file, self._get_chunk)
            yield from read.findings
            self.num_files += not read.findings
            if file.name == self._weights_name:
                whole = read.data
            elif patch is not None and file is patch.content:
                patch_data = read.data
        if patch is not None and patch_data is not None:
            yield from self._made(manifest, patch, patch_data)
        if whole is not None:
            self._keep(manifest, whole)
        if self._weights.data is not None and self._weights.version == version and manifest.kind != "adapter":
            yield from table_findings(manifest, self._weights_name, self._weights.data)

    def _made(self, manifest: Manifest, patch: WeightsPatch, patch_data: bytearray) -> Iterator[Finding]:
        """Apply a patch to the version before; kept if what it makes is true."""
        version, held = manifest.policy_version, self._weights
        where = f"{patch.file} made by {patch.content.name}"
        if held.data is None or held.version != patch.base_version:
            if manifest.kind == "patch":
                detail = f"no true {patch.file} of version {patch.base_version} is at hand to apply it to"
                yield Finding(version=version, where=where, reason=MISSING, detail=detail)
            else:
                self.unchecked_patches.append(version)
            return
        target = next(file for file in manifest.files if file.name == patch.file)
        data = bytearray(held.data)
        try:
            apply_patch(data, bytes(patch_data), base_sha256=held.sha256)
        except PeerFault as fault:
            yield Finding(version=version, where=where, reason=fault.reason, detail=fault.detail)
            return
        findings = whole_findings(version, target, data)
        yield from findings
        if not findings:
            self.num_files += 1
            self._keep(manifest, data)

    def _keep(self, manifest: Manifest, data: bytearray) -> None:
        sha256 = next(file.sha256 for file in manifest.files if file.name == self._weights_name)
        self._weights = _Weights(manifest.policy_version, sha256, data)
