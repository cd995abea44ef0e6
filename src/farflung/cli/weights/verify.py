"""`farflung weights verify SOURCE`: signature, chain, chunks, files, and those that patches make; else 1."""

import json
import mmap
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from farflung.broadcast.verify import LIMITS, Verifier, manifest_findings
from farflung.cli.env.tables import plain
from farflung.cli.weights.source import MANIFEST_SUFFIX, WEIGHTS_FILE, PlainFiles, Versions, opened, split_version
from farflung.errors import PeerFault, UserError
from farflung.identity.signing import signer_of
from farflung.sharding.findings import MISSING, Finding, whole_findings
from farflung.wire.manifest import Chunk, Manifest, ManifestFile

EXIT_WRONG = 1
MAX_SHOWN = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What was looked at, and what was wrong with it."""

    versions: Sequence[int]
    trainer: str
    num_files: int
    """Found true."""
    unchecked_patches: Sequence[int]
    """Versions that are whole beside a patch on one that is not at hand."""
    findings: Sequence[Finding]


def run_verify(arguments: Namespace) -> int:
    with opened(arguments.source) as source:
        if isinstance(source, PlainFiles):
            raise UserError(
                f"{source.name} has no manifest: give a run folder, a URL or a manifest file, and it as --files"
            )
        trainer = arguments.trainer or _signer(source.manifest)
        place, version = split_version(arguments.source)
        folder = arguments.files or (Path(place).parent if place.endswith(MANIFEST_SUFFIX) else None)
        if folder is not None:
            report = _of_files(source.manifest, trainer, Path(folder))
        else:
            report = _of_chunks(source, trainer, is_one=version is not None)
    if arguments.json:
        sys.stdout.write(json.dumps(asdict(report), indent=2) + "\n")
    else:
        _show(source.name, report)
    return EXIT_WRONG if report.findings else 0


def _signer(manifest: Manifest) -> str:
    """Of the newest; no address if there is no signature, which is then found by the check."""
    try:
        return signer_of(manifest)
    except PeerFault:
        return ""


def _of_chunks(source: Versions, trainer: str, *, is_one: bool) -> Report:
    """One version with what it is made from, or all that there are."""
    manifests = source.chain() if is_one else source.manifests
    promised = [file for manifest in manifests.values() for file in manifest.promised_files]
    columns = (TextColumn("checking"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        bar = progress.add_task("bytes", total=sum(file.num_bytes for file in promised))

        def get_chunk(chunk: Chunk) -> bytes | None:
            progress.advance(bar, chunk.num_bytes)
            return source.get_chunk(chunk)

        verifier = Verifier(manifests, trainer, get_chunk, WEIGHTS_FILE)
        findings = tuple(verifier.findings())
    return Report(
        versions=sorted(manifests),
        trainer=trainer,
        num_files=verifier.num_files,
        unchecked_patches=verifier.unchecked_patches,
        findings=findings,
    )


def _of_files(manifest: Manifest, trainer: str, folder: Path) -> Report:
    """Files in a folder against one manifest."""
    findings = manifest_findings(manifest, None, trainer, LIMITS)
    in_files = list(_file_findings(manifest, folder))
    wrong = {finding.where for finding in in_files}
    return Report(
        versions=[manifest.policy_version],
        trainer=trainer,
        num_files=sum(file.name not in wrong for file in manifest.files),
        unchecked_patches=[],
        findings=[*findings, *in_files],
    )


def _file_findings(manifest: Manifest, folder: Path) -> Iterator[Finding]:
    for file in _there(manifest, folder):
        path = folder / file.name
        if not path.is_file():
            detail = f"there is no {path}"
            yield Finding(version=manifest.policy_version, where=file.name, reason=MISSING, detail=detail)
        elif path.stat().st_size == 0:
            yield from whole_findings(manifest.policy_version, file, b"")
        else:
            with (
                path.open("rb") as opened_file,
                mmap.mmap(opened_file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
                memoryview(mapped) as view,
            ):
                yield from whole_findings(manifest.policy_version, file, view)


def _there(manifest: Manifest, folder: Path) -> Iterator[ManifestFile]:
    """The version's files; the patch in place of the file that it makes if that one has not been made there."""
    patch = manifest.patch
    for file in manifest.files:
        is_made = patch is None or patch.file != file.name or (folder / file.name).exists()
        yield file if is_made or patch is None or not (folder / patch.content.name).exists() else patch.content


def _show(name: str, report: Report) -> None:
    for finding in report.findings[:MAX_SHOWN]:
        sys.stdout.write(plain(f"{finding}\n"))
    if len(report.findings) > MAX_SHOWN:
        sys.stdout.write(f"and {len(report.findings) - MAX_SHOWN} more: --json has all\n")
    versions = list(report.versions)
    span = f"version {versions[0]}" if len(versions) == 1 else f"versions {versions[0]} to {versions[-1]}"
    trainer = f"signed by {report.trainer}" if report.trainer else "signed by nobody"
    if report.findings:
        sys.stdout.write(f"{name}, {span}, {trainer}: {_counted(len(report.findings))}\n")
        return
    sys.stdout.write(f"{name}, {span}, {trainer}: {report.num_files} files are true\n")
    if report.unchecked_patches:
        without = ", ".join(map(str, report.unchecked_patches))
        sys.stdout.write(f"not applied for want of the version before: the patches beside the snapshots {without}\n")


def _counted(number: int) -> str:
    return "1 thing is wrong" if number == 1 else f"{number} things are wrong"
