"""A policy version as it lies in a fetcher's memory, and which of its elements are not those of an earlier version."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farflung.errors import PeerFault
from farflung.sharding.patch_apply import TensorChange
from farflung.wire.canonical import MALFORMED_RECORD
from farflung.wire.manifest import Manifest

Changed = Mapping[str, NDArray[np.int64] | None]
"""Tensor name -> flat positions of changed elements, ascending; None = all of them. Others are as they were."""


@dataclass(frozen=True, slots=True)
class PatchStep:
    """What one patch did."""

    policy_version: int
    """That it made."""
    changes: Sequence[TensorChange]

    @property
    def num_changed(self) -> int:
        return sum(
            change.span.num_elements if change.indices is None else len(change.indices) for change in self.changes
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HeldWeights:
    """A weights file whose every byte was checked."""

    policy_version: int
    sha256: str
    data: bytearray
    """Never changed: the next version is made in a copy."""
    steps: tuple[PatchStep, ...] = ()
    """The last patches that led here, one version each, the newest last."""

    def changed_since(self, version: int) -> Changed | None:
        """None if it is not known any more: it may be everything."""
        steps = [step for step in self.steps if step.policy_version > version]
        if not steps or steps[0].policy_version != version + 1:
            return None
        found: dict[str, list[NDArray[np.int64]] | None] = {}
        for change in (change for step in steps for change in step.changes):
            before = found.get(change.span.name, [])
            found[change.span.name] = None if before is None or change.indices is None else [*before, change.indices]
        return {name: None if parts is None else _union(parts) for name, parts in found.items()}


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class FetchedPolicy:
    """A version whose every byte was checked."""

    manifest: Manifest
    files: dict[str, bytes]
    """Without those that the fetcher was told to leave out, and without `weights`."""
    weights: HeldWeights | None = None
    """The weights file of a version that is no adapter, where patches are followed."""

    def sha256_of(self, name: str) -> str:
        """Of a file of the version, fetched or not. Raises `PeerFault` if it has no such file."""
        for file in self.manifest.files:
            if file.name == name:
                return file.sha256
        raise PeerFault(MALFORMED_RECORD, f"version {self.manifest.policy_version} has no file {name}")


def _union(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
