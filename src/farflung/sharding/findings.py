"""What is wrong with a version: its files held against its manifest, chunk by chunk, as values that name the place.

A chunk that is not what the manifest says is told with its bytes in the file, so that whoever sees the finding knows
what to fetch again and whom to ask about it. Does not know signatures, where bytes lie, or how they came.
"""

from collections.abc import Callable
from dataclasses import dataclass

from farflung.errors import PeerFault
from farflung.sharding.file_layout import read_layout
from farflung.sharding.plan import with_offsets
from farflung.wire.canonical import sha256_hex
from farflung.wire.manifest import Chunk, Manifest, ManifestFile

MISSING, CHUNK_DIGEST, FILE_DIGEST, FILE_SIZE, TENSOR_TABLE = (
    "missing", "chunk_digest", "file_digest", "file_size", "tensor_table",
)  # fmt: skip

GetChunk = Callable[[Chunk], bytes | None]
"""The bytes that are there under a chunk's name, true or not; None = there are none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is not as the manifest says."""

    version: int
    where: str
    """File, "manifest" or "chain"."""
    reason: str
    detail: str
    chunk: int | None = None
    first_byte: int | None = None
    """Of the chunk in its file."""
    end_byte: int | None = None
    """One after its last."""

    def __str__(self) -> str:
        place = f"version {self.version}, {self.where}"
        if self.chunk is not None:
            place = f"{place}, chunk {self.chunk}, bytes {self.first_byte} to {self.end_byte}"
        return f"{place}: {self.reason}: {self.detail}"


@dataclass(frozen=True, slots=True, eq=False)
class ReadFile:
    """A file that was put together from its chunks."""

    data: bytearray | None
    """None if anything was found."""
    findings: tuple[Finding, ...] = ()


def read_file(version: int, file: ManifestFile, get_chunk: GetChunk) -> ReadFile:
    """Every chunk is looked at, also after one that is wrong. Memory: the file."""
    data = bytearray(file.num_bytes)
    findings: list[Finding] = []
    for start, chunk in with_offsets(file):
        found = get_chunk(chunk)
        finding = _chunk_finding(version, file.name, start, chunk, found)
        if finding is not None:
            findings.append(finding)
        elif found is not None:
            data[start : start + chunk.num_bytes] = found
    findings = findings or whole_findings(version, file, data)
    return ReadFile(None, tuple(findings)) if findings else ReadFile(data)


def whole_findings(version: int, file: ManifestFile, data: bytes | bytearray | memoryview) -> list[Finding]:
    """A file's bytes against its size and hash and, if these differ, its chunks': which bytes they are."""
    view = memoryview(data)
    digest = sha256_hex(view)
    if len(view) == file.num_bytes and digest == file.sha256:
        return []
    findings = [
        finding
        for start, chunk in with_offsets(file)
        if (finding := _chunk_finding(version, file.name, start, chunk, view[start : start + chunk.num_bytes]))
    ]
    if len(view) != file.num_bytes:
        detail = f"{len(view)} bytes in place of {file.num_bytes}"
        return [Finding(version=version, where=file.name, reason=FILE_SIZE, detail=detail), *findings]
    detail = f"{digest} in place of {file.sha256}"
    return findings or [Finding(version=version, where=file.name, reason=FILE_DIGEST, detail=detail)]


def table_findings(manifest: Manifest, name: str, weights: bytes | bytearray) -> list[Finding]:
    """The tensors of a weights file against the manifest's table of them."""

    def finding(detail: str) -> Finding:
        return Finding(version=manifest.policy_version, where=name, reason=TENSOR_TABLE, detail=detail)

    try:
        held = {span.name: (span.dtype, span.shape) for span in read_layout(weights)}
    except PeerFault as fault:
        return [finding(str(fault))]
    promised = {entry.name: (entry.dtype, entry.shape) for entry in manifest.tensors}
    return [
        finding(f"{tensor[:80]} is {_shown(held.get(tensor))}, the manifest says {_shown(promised.get(tensor))}")
        for tensor in sorted(held.keys() | promised.keys())
        if held.get(tensor) != promised.get(tensor)
    ]


def _chunk_finding(
    version: int, file: str, start: int, chunk: Chunk, data: bytes | memoryview | None
) -> Finding | None:
    if data is None:
        reason, detail = MISSING, f"there is no chunk {chunk.sha256}"
    elif (digest := sha256_hex(data)) != chunk.sha256 or len(data) != chunk.num_bytes:
        reason, detail = CHUNK_DIGEST, f"{len(data)} bytes with sha256 {digest} in place of {chunk.sha256}"
    else:
        return None
    return Finding(
        version=version,
        where=file,
        reason=reason,
        detail=detail,
        chunk=chunk.index,
        first_byte=start,
        end_byte=start + chunk.num_bytes,
    )


def _shown(entry: tuple[str, tuple[int, ...]] | None) -> str:
    return "absent" if entry is None else f"{entry[0]} {list(entry[1])}"
