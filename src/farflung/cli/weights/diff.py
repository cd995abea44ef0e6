"""`farflung weights diff OLD NEW`: what changed, tensor by tensor, and how large it is to say."""

import json
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from farflung.broadcast.verify import Verifier
from farflung.cli.env.tables import table
from farflung.cli.weights.shown import num_bytes, share, times
from farflung.cli.weights.source import SAFETENSORS, WEIGHTS_FILE, Source, Versions, opened, split_version
from farflung.errors import PeerFault, UserError
from farflung.identity.signing import signer_of
from farflung.sharding.difference import Difference, TensorDifference, compare
from farflung.sharding.findings import read_file
from farflung.sharding.patch_build import build_patch
from farflung.wire.manifest import ManifestFile

PICTURES = (".png", ".svg", ".pdf")
MAX_SHOWN = 12

Files = Mapping[str, bytes | bytearray | memoryview]
"""Safetensors files by name."""


def run_diff(arguments: Namespace) -> int:
    picture = None if arguments.picture is None else Path(arguments.picture)
    if picture is not None and picture.suffix not in PICTURES:
        raise UserError(f"--picture is {picture}: its name must end with {', '.join(PICTURES)}")
    new = arguments.new
    if new.startswith("@"):
        new = split_version(arguments.old)[0] + new
    with ExitStack() as stack:
        old_source = stack.enter_context(opened(arguments.old))
        new_source = stack.enter_context(opened(new))
        try:
            old_files, new_files = files_of(old_source), files_of(new_source)
            difference = compare(list(old_files.values()), list(new_files.values()))
            patch_bytes = built_patch_bytes(old_files, new_files)
        except PeerFault as fault:
            raise UserError(f"they cannot be compared: {fault.detail}") from fault
        found = {
            "old": _name(old_source),
            "new": _name(new_source),
            "published_patch_bytes": _published(old_source, new_source),
            **described(difference, patch_bytes, sum(len(data) for data in new_files.values())),
        }
        del old_files, new_files
    if picture is not None:
        from farflung.cli.weights.picture import draw_density

        draw_density(difference, picture, f"{found['old']} to {found['new']}")
    if arguments.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        _show(found, difference, with_tensors=arguments.tensors)
    return 0


def files_of(source: Source) -> Files:
    """A version's safetensors files, every byte checked; plain ones as they lie there.

    Raises:
        UserError: it cannot be put together from what is at hand.
    """
    if not isinstance(source, Versions):
        return {name: memoryview(data) for name, data in source.files.items()}
    verifier = Verifier(source.chain(), signer_of(source.manifest), source.get_chunk, WEIGHTS_FILE)
    findings = list(verifier.findings())
    if findings:
        raise UserError(f"{_name(source)} is not whole: {findings[0]}; farflung weights verify names all that is wrong")
    files: dict[str, bytes | bytearray | memoryview] = {}
    for file in source.manifest.files:
        data = verifier.weights if file.name == WEIGHTS_FILE else _read(source, file)
        if data is not None and file.name.endswith(SAFETENSORS):
            files[file.name] = data
    return files


def _read(source: Versions, file: ManifestFile) -> bytearray | None:
    if not file.name.endswith(SAFETENSORS):
        return None
    return read_file(source.wanted, file, source.get_chunk).data


def built_patch_bytes(old: Files, new: Files) -> int | None:
    """Of the patches that make every new file from the old one of its name; None where there is no patch."""
    if old.keys() != new.keys():
        return None
    patches = [build_patch(bytes(old[name]), bytes(new[name])) for name in new]
    return None if None in patches else sum(len(patch) for patch in patches if patch is not None)


def described(difference: Difference, patch_bytes: int | None, snapshot_bytes: int) -> dict[str, Any]:
    return {
        "num_elements": difference.num_elements,
        "num_changed": difference.num_changed,
        "density": difference.density,
        "information_bytes": round(difference.information_bytes),
        "patch_bytes": patch_bytes,
        "snapshot_bytes": snapshot_bytes,
        "only_old": list(difference.only_old),
        "only_new": list(difference.only_new),
        "recast": dict(difference.recast),
        "tensors": [
            {
                "name": tensor.name,
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "num_changed": tensor.num_changed,
                "density": tensor.density,
            }
            for tensor in difference.tensors
        ],
    }


def _name(source: Source) -> str:
    return f"{source.name}@{source.wanted}" if isinstance(source, Versions) else source.name


def _published(old: Source, new: Source) -> int | None:
    """Bytes of the patch that was published between the two, if they are neighbours."""
    if not (isinstance(old, Versions) and isinstance(new, Versions)) or new.manifest.patch is None:
        return None
    is_next = new.manifest.previous_digest == old.manifest.digest()
    return new.manifest.patch.content.num_bytes if is_next else None


def _show(found: Mapping[str, Any], difference: Difference, *, with_tensors: bool) -> None:
    console = Console(file=sys.stdout)
    snapshot, information = found["snapshot_bytes"], found["information_bytes"]
    patch = found["patch_bytes"]
    rows = {
        "": f"{found['old']} to {found['new']}",
        "changed": f"{difference.num_changed:,} of {difference.num_elements:,} elements, {share(difference.density)}",
        "snapshot": num_bytes(snapshot),
        "information": f"{num_bytes(information)} ({times(snapshot, information)} of it)",
        "patch": "there is none: the tensors are not the same"
        if patch is None
        else _patch(patch, snapshot, information),
    }
    if found["published_patch_bytes"] is not None:
        rows["published"] = num_bytes(found["published_patch_bytes"])
    console.print(table(("", ""), rows.items()))
    _show_others(console, difference)
    changed = [tensor for tensor in difference.tensors if tensor.num_changed]
    densest = sorted(changed, key=lambda tensor: -tensor.density)
    shown = changed if with_tensors else densest[:MAX_SHOWN]
    if shown:
        console.print()
        console.print(table(("tensor", "type", "shape", "changed", "density"), map(_row, shown)))
    if len(shown) < len(changed):
        console.print(f"the densest {len(shown)} of {len(changed)} changed tensors: --tensors for all", style="dim")


def _patch(patch: int, snapshot: int, information: int) -> str:
    over = f", {patch / information:.2f} times the information" if information else ""
    return f"{num_bytes(patch)} ({times(snapshot, patch)} of a snapshot{over})"


def _show_others(console: Console, difference: Difference) -> None:
    for title, names in (("only in the old", difference.only_old), ("only in the new", difference.only_new)):
        if names:
            console.print(f"{title}: {_listed(names)}", markup=False)
    recast = [f"{name}: {text}" for name, text in difference.recast.items()]
    if recast:
        console.print(f"of another type or shape: {_listed(recast)}", markup=False)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + more


def _row(tensor: TensorDifference) -> tuple[str, ...]:
    shape = str(list(tensor.shape))
    return tensor.name, tensor.dtype, shape, f"{tensor.num_changed:,}", share(tensor.density)
