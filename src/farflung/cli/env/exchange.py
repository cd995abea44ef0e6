"""`farflung env publish`, `install`, `remove`. Nothing of a package is run while it is installed."""

import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

from farflung.cli.env.check import check_package, failures, show_checks
from farflung.envs.packages.home import VARIABLE, Home
from farflung.envs.packages.index import Index
from farflung.envs.packages.names import require_free
from farflung.envs.packages.project import read_project
from farflung.envs.registry import entry_point_names, home_folder, names_taken
from farflung.errors import PeerFault, UserError
from farflung.store.object_store import ObjectStore
from farflung.wire.package import PackageManifest


def run_publish(arguments: Namespace) -> int:
    """Test, then publish; 1 = a check failed, and nothing was published."""
    package = read_project(Path(arguments.folder))
    manifest = package.manifest
    own = {manifest.name, *(each.name for each in manifest.environments)}
    require_free(sorted(own), [name for name in names_taken() if name not in own or not _is_installed(name)])
    if not arguments.untested:
        found = check_package(package, trust=arguments.trust)
        for name, checks in found.items():
            show_checks(name, checks)
        if failures(found.values()):
            sys.stdout.write("nothing was published\n")
            return 1
    url = _whole(arguments.index)
    index = Index(ObjectStore(url), url)
    with _blaming(index.url):
        digest = index.publish(package)
    sys.stdout.write(f"{manifest.name} {manifest.version} is in {index.url}\ndigest {digest}\n")
    return 0


def run_install(arguments: Namespace) -> int:
    """Fetch, check every byte, unpack, write the lock."""
    home = _home()
    name, _, wanted = arguments.name.partition("==")
    index = index_to_read(arguments.index)
    with _blaming(index.url):
        versions = index.versions(name)
        if not versions:
            raise UserError(f"{index.url} has no {name}; it has {', '.join(index.names()[:20]) or 'nothing'}")
        manifest = index.manifest(name, wanted or versions[-1])
        digest = manifest.digest()
        if arguments.digest not in (None, digest):
            raise UserError(f"{name} {manifest.version} of {index.url} is {digest}, not {arguments.digest}")
        _require_needs(manifest, is_agreed=arguments.trust is not None)
        package = index.fetch(manifest)
    entry = home.install(package, index.url, names_taken, agreed=arguments.trust or "")
    names = ", ".join(sorted(entry.environments))
    runs = "in each process that uses it, as agreed" if entry.is_agreed else "in a child without network, files or keys"
    sys.stdout.write(
        f"{entry.name} {entry.version} is installed: {names}; {manifest.licence}\ndigest {digest}\nruns {runs}\n"
        f"next: farflung env test {sorted(entry.environments)[0]}\n"
    )
    return 0


def run_remove(arguments: Namespace) -> int:
    """Its files go; which digest its versions had stays known."""
    _home().remove(arguments.name)
    sys.stdout.write(f"{arguments.name} is removed\n")
    return 0


def index_to_read(url: str) -> Index:
    """Raises UserError: a folder that is not there, which a store would make."""
    whole = _whole(url)
    if not urlsplit(whole).scheme and not Path(whole).is_dir():
        raise UserError(
            f"there is no index {whole}: --index must be a folder or a bucket that something is published in"
        )
    return Index(ObjectStore(whole), whole)


def _whole(url: str) -> str:
    """A folder by its whole path, so that the lock means the same from everywhere."""
    return url if urlsplit(url).scheme else str(Path(url).absolute())


def _home() -> Home:
    home = home_folder()
    if home is None:
        raise UserError(f"you have no home folder to install in: name a folder in the variable {VARIABLE}")
    return home


def _is_installed(name: str) -> bool:
    """An author's own `pip install -e .` does not take the name from him."""
    return name in entry_point_names()


def _require_needs(manifest: PackageManifest, *, is_agreed: bool) -> None:
    missing = [name for name in manifest.requires if not _has(name)]
    if missing:
        raise UserError(
            f"{manifest.name} needs {', '.join(missing)}, which is not installed here: install it yourself, if you "
            f"trust it, with pip install {' '.join(missing)}"
        )
    if manifest.sandbox == "code" and not is_agreed:
        raise UserError(
            f"{manifest.name} runs programs that a model wrote, which a child behind walls cannot shut in once more: "
            f"read it, and if it may do what you may, --trust {manifest.digest()}"
        )


def _has(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


@contextmanager
def _blaming(url: str) -> Iterator[None]:
    """An index that says what no index says is named, not a coordinator."""
    try:
        yield
    except PeerFault as error:
        raise UserError(f"{url} is faulty, and nothing was taken from it: {error.detail}") from error
