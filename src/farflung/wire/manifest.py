"""The signed description of one policy version."""

from typing import ClassVar, Literal

from farflung.wire.batch import BatchRecord
from farflung.wire.canonical import Record, canonical_json, tagged_digest
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.invariants import require_counts, require_digests, require_names


class Chunk(Record, frozen=True, kw_only=True):
    """A piece of a file, stored under `chunks/<sha256>`."""

    index: int
    num_bytes: int
    sha256: str

    def __post_init__(self) -> None:
        require_counts(index=self.index, num_bytes=self.num_bytes)
        require_digests(sha256=self.sha256)


class ManifestFile(Record, frozen=True, kw_only=True):
    name: str
    """Plain file name; never a path."""
    num_bytes: int
    sha256: str
    """Of the whole file."""
    chunks: tuple[Chunk, ...]

    def __post_init__(self) -> None:
        require_names(name=self.name)
        require_counts(num_bytes=self.num_bytes)
        require_digests(sha256=self.sha256)


class WeightsPatch(Record, frozen=True, kw_only=True):
    """Makes one file of a version from that of the version before."""

    file: str
    """Name of the file that it makes."""
    base_version: int
    base_sha256: str
    """Of the whole file that it is applied to."""
    content: ManifestFile
    """The patch itself."""

    def __post_init__(self) -> None:
        require_names(file=self.file)
        require_counts(base_version=self.base_version)
        require_digests(base_sha256=self.base_sha256)


class TensorEntry(Record, frozen=True, kw_only=True):
    name: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        require_names(name=self.name, dtype=self.dtype)
        require_counts(shape=min(self.shape, default=0))


class Manifest(Record, frozen=True, kw_only=True):
    """Written last, so that its existence means that every chunk which its kind promises is there."""

    DOMAIN: ClassVar[str] = "farflung/manifest/1"
    MAX_BYTES: ClassVar[int] = 8 << 20

    pool_digest: str
    policy_version: int
    """Count of publications."""
    policy_digest: str
    """Covers weights, model config and tokenizer; not expiry or signature."""
    optimizer_step: int
    kind: Literal["snapshot", "patch", "adapter"] = "snapshot"
    """
    snapshot: every file can be fetched; the weights by a patch as well, if there is one
    patch: the weights can be had by the patch alone, on those of the version before
    adapter: the weights among the files are a base that stays, the policy is they with the adapter beside them
    """
    files: tuple[ManifestFile, ...]
    """All of the version, described whole whatever its kind."""
    patch: WeightsPatch | None = None
    tensors: tuple[TensorEntry, ...]
    published_at_ms: int
    expires_at_ms: int
    previous_digest: str = ""
    """Digest of the previous version's manifest; empty for the first."""
    curriculum_digest: str = ""
    """Of the plan that the tasks of this version's slots follow from; empty = none."""
    signature: str = ""

    def __post_init__(self) -> None:
        require_digests(pool_digest=self.pool_digest, policy_digest=self.policy_digest)
        if self.previous_digest:
            require_digests(previous_digest=self.previous_digest)
        if self.curriculum_digest:
            require_digests(curriculum_digest=self.curriculum_digest)
        require_counts(policy_version=self.policy_version, optimizer_step=self.optimizer_step)
        require_counts(published_at_ms=self.published_at_ms)
        require_counts(at_least=self.published_at_ms, expires_at_ms=self.expires_at_ms)
        self._require_patch()

    def _require_patch(self) -> None:
        patch = self.patch
        if (patch is None and self.kind == "patch") or (patch is not None and self.kind == "adapter"):
            raise ValueError(f"kind is {self.kind!r} {'without' if patch is None else 'with'} a patch")
        if patch is None:
            return
        if patch.base_version != self.policy_version - 1:
            raise ValueError(f"base_version is {patch.base_version}: it must be one below {self.policy_version}")
        if patch.file not in {file.name for file in self.files}:
            raise ValueError(f"the patch makes {patch.file!r}, which is none of the files")

    @property
    def promised_files(self) -> tuple[ManifestFile, ...]:
        """Those whose chunks can be fetched."""
        if self.patch is None:
            return self.files
        whole = self.files
        if self.kind == "patch":
            whole = tuple(file for file in self.files if file.name != self.patch.file)
        return (*whole, self.patch.content)


class Publication(Record, frozen=True, kw_only=True):
    """What the trainer announces: a version, the batch that made it (none for the first) and the plan that it names."""

    MAX_BYTES: ClassVar[int] = 9 << 20

    manifest: Manifest
    batch: BatchRecord | None = None
    curriculum: CurriculumPlan | None = None
    """What the tasks of its slots follow from, beside the pool's rules; None if the manifest names none."""


def policy_digest(files: tuple[ManifestFile, ...]) -> str:
    """Identity of a policy: names, sizes and content digests of its files, in name order."""
    entries = [[file.name, file.num_bytes, file.sha256] for file in sorted(files, key=lambda file: file.name)]
    return tagged_digest("farflung/policy/1", canonical_json(entries))
