"""`farflung weights inspect SOURCE`: what a version holds, how it travels, what it is made from."""

import json
import math
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from farflung.cli.env.tables import plain, table
from farflung.cli.weights.shown import moment, num_bytes, times
from farflung.cli.weights.source import SAFETENSORS, WEIGHTS_FILE, PlainFiles, Versions, opened
from farflung.errors import PeerFault, UserError
from farflung.identity.signing import signer_of
from farflung.sharding.file_layout import TensorSpan, read_layout
from farflung.sharding.route import VersionOffer, cheapest
from farflung.wire.manifest import Manifest, TensorEntry

MAX_CHAIN_SHOWN = 24
SHOWN_DIGITS = 16
_KIND = {"snapshot": "a snapshot", "patch": "a patch", "adapter": "an adapter"}


def run_inspect(arguments: Namespace) -> int:
    with opened(arguments.source) as source:
        if isinstance(source, PlainFiles):
            if arguments.save is not None:
                raise UserError(f"{source.name} has no manifest to --save: nobody signed it")
            found = _plain(source)
        else:
            found = described(source)
            if arguments.save is not None:
                _save(source.manifest, Path(arguments.save))
    if arguments.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        _show(found, with_tensors=arguments.tensors)
    return 0


def described(source: Versions) -> dict[str, Any]:
    """Everything that the manifest says, and what it costs to get there."""
    manifest = source.manifest
    return {
        "source": source.name,
        "version": manifest.policy_version,
        "kind": manifest.kind,
        "optimizer_step": manifest.optimizer_step,
        "published": moment(manifest.published_at_ms),
        "expires": moment(manifest.expires_at_ms),
        "trainer": _signer(manifest),
        "pool_digest": manifest.pool_digest,
        "policy_digest": manifest.policy_digest,
        "digest": manifest.digest(),
        "previous_digest": manifest.previous_digest,
        "num_bytes": sum(file.num_bytes for file in manifest.files),
        "files": _files(manifest),
        "fetch": _fetch(source),
        "kept": [_kept(each) for _, each in sorted(source.manifests.items())],
        "tensors": [_tensor(entry, math.prod(entry.shape)) for entry in manifest.tensors],
    }


def _signer(manifest: Manifest) -> str:
    try:
        return signer_of(manifest)
    except PeerFault as fault:
        return f"nobody ({fault})"


def _files(manifest: Manifest) -> list[dict[str, Any]]:
    promised = {file.name for file in manifest.promised_files}
    described_files = (*manifest.files, *(() if manifest.patch is None else (manifest.patch.content,)))
    return [
        {
            "name": file.name,
            "num_bytes": file.num_bytes,
            "sha256": file.sha256,
            "num_chunks": len(file.chunks) if file.name in promised else 0,
            "travels": file.name in promised,
        }
        for file in described_files
    ]


def _fetch(source: Versions) -> dict[str, Any]:
    """Bytes of weights that a node fetches which holds the version before, or nothing."""
    if source.manifest.kind == "adapter":
        return _fetch_adapter(source.manifest)
    offers = {version: _offer(each) for version, each in source.chain().items()}
    version = source.wanted
    before, late = (cheapest(offers, have=have, want=version) for have in (version - 1, None))
    return {
        "weights": _weights_bytes(source.manifest),
        "from_version_before": None if before is None else before.num_bytes,
        "from_nothing": None if late is None else late.num_bytes,
        "from_nothing_snapshot": None if late is None else late.snapshot,
        "from_nothing_patches": [] if late is None else list(late.patches),
    }


def _fetch_adapter(manifest: Manifest) -> dict[str, Any]:
    """The weights are a base, which stays from version to version."""
    base = _weights_bytes(manifest)
    adapter = sum(file.num_bytes for file in manifest.files if file.name.endswith(SAFETENSORS)) - base
    return {
        "weights": base,
        "from_version_before": adapter,
        "from_nothing": base + adapter,
        "from_nothing_snapshot": manifest.policy_version,
        "from_nothing_patches": [],
    }


def _offer(manifest: Manifest) -> VersionOffer:
    return VersionOffer(
        patch_bytes=None if manifest.patch is None else manifest.patch.content.num_bytes,
        snapshot_bytes=None if manifest.kind == "patch" else _weights_bytes(manifest),
    )


def _weights_bytes(manifest: Manifest) -> int:
    name = WEIGHTS_FILE if manifest.patch is None else manifest.patch.file
    return sum(file.num_bytes for file in manifest.files if file.name == name)


def _kept(manifest: Manifest) -> dict[str, Any]:
    files = manifest.promised_files
    return {
        "version": manifest.policy_version,
        "kind": manifest.kind,
        "patch_bytes": None if manifest.patch is None else manifest.patch.content.num_bytes,
        "num_bytes": sum(file.num_bytes for file in manifest.files),
        "bytes_to_fetch": sum(file.num_bytes for file in files),
        "num_chunks": sum(len(file.chunks) for file in files),
    }


def _plain(source: PlainFiles) -> dict[str, Any]:
    spans = {name: _layout(name, data) for name, data in source.files.items()}
    return {
        "source": source.name,
        "num_bytes": sum(len(data) for data in source.files.values()),
        "files": [{"name": name, "num_bytes": len(data)} for name, data in source.files.items()],
        "tensors": [_tensor(span, span.num_elements) for each in spans.values() for span in each],
    }


def _layout(name: str, data: Any) -> tuple[TensorSpan, ...]:
    try:
        return read_layout(data)
    except PeerFault as fault:
        raise UserError(f"{name} cannot be read: {fault.detail}") from fault


def _tensor(entry: TensorEntry | TensorSpan, num_elements: int) -> dict[str, Any]:
    return {"name": entry.name, "dtype": entry.dtype, "shape": list(entry.shape), "num_elements": num_elements}


def _save(manifest: Manifest, path: Path) -> None:
    if path.exists():
        raise UserError(f"{path} exists: choose another place for --save, or remove it")
    path.write_bytes(manifest.to_bytes())


def _show(found: Mapping[str, Any], *, with_tensors: bool) -> None:
    console = Console(file=sys.stdout)
    tensors = found["tensors"]
    by_dtype = Counter[str]()
    for tensor in tensors:
        by_dtype[tensor["dtype"]] += tensor["num_elements"]
    elements = ", ".join(f"{count:,} {dtype}" for dtype, count in by_dtype.items())
    rows = {"": found["source"], **(_about(found) if "version" in found else {})}
    rows["content"] = f"{num_bytes(found['num_bytes'])}; {len(tensors)} tensors: {elements or 'none described'}"
    console.print(table(("", ""), rows.items()))
    console.print()
    titles = ("file", "bytes", "chunks")
    console.print(table(titles, ((file["name"], f"{file['num_bytes']:,}", _chunks(file)) for file in found["files"])))
    if len(found.get("kept", ())) > 1:
        console.print()
        console.print(table(("version", "kind", "patch", "to fetch", "chunks"), _chain_rows(found["kept"])))
    if with_tensors:
        console.print()
        shown = ((each["name"], each["dtype"], str(each["shape"]), f"{each['num_elements']:,}") for each in tensors)
        console.print(table(("tensor", "type", "shape", "elements"), shown))


def _about(found: Mapping[str, Any]) -> dict[str, str]:
    kept = [each["version"] for each in found["kept"]]
    digests = {
        name.replace("_", " "): found[name][:SHOWN_DIGITS] for name in ("pool_digest", "policy_digest", "digest")
    }
    return {
        "version": f"{found['version']}, {_KIND[found['kind']]}; at hand: {', '.join(map(str, kept))}",
        "optimizer step": str(found["optimizer_step"]),
        "published": f"{found['published']}, expires {found['expires']}",
        "trainer": plain(found["trainer"]),
        **digests,
        "follows": found["previous_digest"][:SHOWN_DIGITS] or "none, it is the first",
        "to fetch": _to_fetch(found["fetch"]),
    }


def _to_fetch(fetch: Mapping[str, Any]) -> str:
    parts = []
    if fetch["from_version_before"] is not None:
        size = fetch["from_version_before"]
        parts.append(f"{num_bytes(size)} ({times(fetch['weights'], size)} of them) with the version before")
    if fetch["from_nothing"] is not None:
        way = f"snapshot {fetch['from_nothing_snapshot']}"
        if fetch["from_nothing_patches"]:
            way = f"{way} and patches {', '.join(map(str, fetch['from_nothing_patches']))}"
        parts.append(f"{num_bytes(fetch['from_nothing'])} without ({way})")
    return "; ".join(parts) or "the versions that it is made from are not at hand"


def _chunks(file: Mapping[str, Any]) -> str:
    return str(file["num_chunks"]) if file.get("travels") else "made by the patch" if "travels" in file else ""


def _chain_rows(kept: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, ...]]:
    for each in list(kept)[-MAX_CHAIN_SHOWN:]:
        patch = "" if each["patch_bytes"] is None else num_bytes(each["patch_bytes"])
        yield str(each["version"]), each["kind"], patch, num_bytes(each["bytes_to_fetch"]), str(each["num_chunks"])
