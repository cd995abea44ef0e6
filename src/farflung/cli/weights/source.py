"""Where versions or plain weights are looked for: `runs/demo`, `runs/demo@7`, a URL, a manifest, a model folder."""

import asyncio
import mmap
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from farflung.api.routes import MAX_CHUNK_BYTES
from farflung.broadcast.servers import Servers
from farflung.cli import ports
from farflung.cli.run_folder import RunFolder
from farflung.coordinator.files import CHUNKS
from farflung.coordinator.journal import decode
from farflung.coordinator.pool_state import restore
from farflung.errors import PeerFault, Transient, UserError
from farflung.sharding.plan import with_offsets
from farflung.state.event_log import SqlEventLog
from farflung.store.object_store import ObjectStore
from farflung.wire.manifest import Chunk, Manifest

WEIGHTS_FILE = "model.safetensors"
SAFETENSORS = ".safetensors"
MANIFEST_SUFFIX = ".json"
MAX_BACK = 1024
"""Versions that are looked back at most."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Versions:
    """Signed versions of one run."""

    name: str
    manifests: Mapping[int, Manifest]
    """Those at hand."""
    wanted: int
    """The one that was asked for."""
    get_chunk: Callable[[Chunk], bytes | None]

    @property
    def manifest(self) -> Manifest:
        return self.manifests[self.wanted]

    def chain(self) -> dict[int, Manifest]:
        """The wanted version, and those before it from the newest whole one on, oldest first."""
        chain: dict[int, Manifest] = {}
        version = self.wanted
        while (manifest := self.manifests.get(version)) is not None:
            chain[version] = manifest
            if manifest.kind != "patch":
                break
            version -= 1
        return dict(sorted(chain.items()))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PlainFiles:
    """Weights that nobody signed."""

    name: str
    files: Mapping[str, mmap.mmap]
    """Safetensors files by name."""


Source = Versions | PlainFiles


def split_version(text: str) -> tuple[str, int | None]:
    """`runs/demo@7` -> ("runs/demo", 7)."""
    place, mark, number = text.rpartition("@")
    if mark and re.fullmatch(r"\d{1,15}", number) and not Path(text).exists():
        return place, int(number)
    return text, None


@contextmanager
def opened(text: str) -> Iterator[Source]:
    """What a SOURCE of the command line names.

    Raises:
        UserError: it names nothing that can be looked at, or a version that is not at hand.
    """
    place, version = split_version(text)
    path = Path(place)
    folder = RunFolder(root=path)
    if ports.is_url(place):
        with _from_url(place, version) as versions:
            yield versions
    elif folder.database.is_file():
        yield _from_run(folder, version)
    elif path.is_file() and path.suffix == MANIFEST_SUFFIX:
        yield _from_manifest(path, version)
    elif version is not None:
        raise UserError(f"{place} has no versions: @{version} fits a run folder with a coordinator, or a URL")
    else:
        yield PlainFiles(name=text, files={file.name: _mapped(file) for file in _weights(path)})


def _from_run(folder: RunFolder, version: int | None) -> Versions:
    try:
        log = SqlEventLog(f"sqlite:///{folder.database}")
    except UserError as error:
        raise UserError(f"{folder.root}: {error}; while it runs, give its coordinator's address instead") from error
    try:
        state = restore(map(decode, log.replay()))
    finally:
        log.close()
    manifests = {} if state is None else state.manifests
    store = ObjectStore(str(folder.store))

    def get_chunk(chunk: Chunk) -> bytes | None:
        try:
            return store.get(f"{CHUNKS}/{chunk.sha256}", max_bytes=MAX_CHUNK_BYTES)
        except KeyError:
            return None

    return _chosen(str(folder.root), manifests, version, get_chunk)


def _from_manifest(path: Path, version: int | None) -> Versions:
    """The chunks are pieces of the files beside it."""
    manifest = read_manifest(path)
    places = {
        chunk.sha256: (path.parent / file.name, start)
        for file in (*manifest.files, *(() if manifest.patch is None else (manifest.patch.content,)))
        for start, chunk in with_offsets(file)
    }

    def get_chunk(chunk: Chunk) -> bytes | None:
        file, start = places[chunk.sha256]
        if not file.is_file():
            return None
        with Path(file).open("rb") as pieces:
            pieces.seek(start)
            return pieces.read(chunk.num_bytes)

    return _chosen(str(path), {manifest.policy_version: manifest}, version, get_chunk)


@contextmanager
def _from_url(url: str, version: int | None) -> Iterator[Versions]:
    """The versions of a coordinator or relay, one request at a time."""
    servers = Servers()
    with asyncio.Runner() as runner:
        runner.run(servers.__aenter__())
        try:
            manifests = runner.run(_manifests_of(servers, url, version))

            def get_chunk(chunk: Chunk) -> bytes | None:
                try:
                    return bytes(runner.run(servers.chunk(url, chunk.sha256, chunk.num_bytes)))
                except (PeerFault, Transient):
                    return None

            yield _chosen(url, manifests, version, get_chunk)
        except PeerFault as fault:
            raise UserError(f"{url} does not answer as a coordinator or relay does: {fault}") from fault
        except Transient as problem:
            raise UserError(f"{url} cannot be asked: {problem}") from problem
        finally:
            runner.run(servers.__aexit__(None, None, None))


async def _manifests_of(servers: Servers, url: str, version: int | None) -> dict[int, Manifest]:
    """The wanted version, or the newest, and those before it down to a whole one."""
    if version is None:
        manifest = await servers.latest_manifest(url, -1, 0)
    else:
        manifest = await servers.manifest(url, version)
    found: dict[int, Manifest] = {}
    at = version if version is not None else manifest.policy_version if manifest is not None else -1
    while manifest is not None and len(found) < MAX_BACK:
        found[at] = manifest
        if manifest.kind != "patch" or at == 0:
            break
        at -= 1
        manifest = await servers.manifest(url, at)
    return found


def read_manifest(path: Path) -> Manifest:
    """Raises UserError: it is none."""
    try:
        with path.open("rb") as file:
            return Manifest.from_bytes(file.read(Manifest.MAX_BYTES + 1).strip())
    except (OSError, PeerFault) as error:
        raise UserError(f"{path} is no manifest of a version: {error}") from error


def _chosen(
    name: str, manifests: Mapping[int, Manifest], version: int | None, get_chunk: Callable[[Chunk], bytes | None]
) -> Versions:
    if not manifests:
        what = "no version" if version is None else f"no version {version}"
        raise UserError(f"{name} has {what}: none was published, or it is not kept any more")
    wanted = max(manifests) if version is None else version
    if wanted not in manifests:
        kept = ", ".join(map(str, sorted(manifests)))
        raise UserError(f"{name} has no version {wanted}: it keeps {kept}")
    return Versions(name=name, manifests=manifests, wanted=wanted, get_chunk=get_chunk)


def _weights(path: Path) -> list[Path]:
    """Safetensors files of a model folder, of the model of a run without a coordinator, or the file itself."""
    if path.is_file():
        return [path]
    model = RunFolder(root=path).model
    folder = model if model.is_dir() else path
    whole = folder / WEIGHTS_FILE
    found = [whole] if whole.is_file() else sorted(folder.glob(f"*{SAFETENSORS}"))
    if not found:
        raise UserError(
            f"{path} is no run folder with a coordinator, no manifest (.json) and has no .safetensors file: give one "
            "of these, or the URL of a coordinator or relay"
        )
    return found


def _mapped(path: Path) -> mmap.mmap:
    """Closed when nobody looks at it any more: views of it may outlive any block."""
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty")
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
