"""An index of packages: a folder or a bucket, by URL.

    packages/<name>/<version>.json      the manifest, canonical
    archives/<manifest digest>.zip      its files, written first

Keys are immutable, so a published version stays what it is. An index is believed in nothing that a hash does not
show: `fetch` returns files whose hashes are those of the manifest, and the manifest's digest is what people agree on.
"""

from farflung.envs.packages.archive import MAX_ARCHIVE_BYTES, pack, unpack
from farflung.envs.packages.project import Package
from farflung.errors import OurFault, PeerFault, UserError
from farflung.store.base import Store
from farflung.wire.package import PackageManifest, require_package_name, require_version, version_order

_MANIFESTS = "packages"
_SUFFIX = ".json"


class Index:
    """Published packages in a store."""

    def __init__(self, store: Store, url: str) -> None:
        self._store = store
        self.url = url

    def publish(self, package: Package) -> str:
        """The digest; the same package again changes nothing.

        Raises:
            UserError: the version is published already, with other files.
            Transient, OurFault: the store.
        """
        manifest = package.manifest
        digest, key = manifest.digest(), _key(manifest.name, manifest.version)
        if self._store.size(key) is not None:
            if self.manifest(manifest.name, manifest.version).digest() == digest:
                return digest
            raise UserError(_TAKEN.format(name=manifest.name, version=manifest.version, url=self.url))
        archive = _archive_key(digest)
        if self._store.size(archive) is None:  # another release of zlib packs the same files otherwise
            self._store.put(archive, pack(package.files))
        try:
            self._store.put(key, manifest.to_bytes())
        except OurFault as error:  # somebody else was faster
            if self._store.size(key) is None:
                raise
            raise UserError(_TAKEN.format(name=manifest.name, version=manifest.version, url=self.url)) from error
        return digest

    def versions(self, name: str) -> list[str]:
        """Published ones, oldest first; names of objects that are no versions are passed over."""
        _checked_name(name)
        found = [key.rpartition("/")[2].removesuffix(_SUFFIX) for key in self._store.keys(f"{_MANIFESTS}/{name}")]
        return sorted(filter(_is_version, found), key=version_order)

    def names(self) -> list[str]:
        """Of all packages."""
        return sorted({key.split("/")[1] for key in self._store.keys(_MANIFESTS) if key.count("/") == 2})

    def manifest(self, name: str, version: str) -> PackageManifest:
        """Raises `UserError` where there is none, `PeerFault` where it is not that of this name and version."""
        try:
            data = self._store.get(_key(_checked_name(name), version), max_bytes=PackageManifest.MAX_BYTES)
        except KeyError:
            known = ", ".join(self.versions(name)[-8:]) or "nothing by that name"
            raise UserError(f"{self.url} has no {name} {version}; it has {known}") from None
        manifest = PackageManifest.from_bytes(data)
        if (manifest.name, manifest.version) != (name, version):
            raise PeerFault(
                "malformed_record", f"{self.url} gives {manifest.name} {manifest.version} for {name} {version}"
            )
        return manifest

    def fetch(self, manifest: PackageManifest) -> Package:
        """The files that a manifest names. Raises `PeerFault` for others, `UserError` where they are missing."""
        try:
            data = self._store.get(_archive_key(manifest.digest()), max_bytes=MAX_ARCHIVE_BYTES)
        except KeyError:
            raise UserError(
                f"{self.url} has no archive of {manifest.name} {manifest.version}: publish it again"
            ) from None
        return Package(manifest=manifest, files=unpack(data, manifest))


_TAKEN = "{name} {version} is published in {url} already, with other files: raise the version in pyproject.toml"


def _key(name: str, version: str) -> str:
    return f"{_MANIFESTS}/{name}/{version}{_SUFFIX}"


def _archive_key(digest: str) -> str:
    return f"archives/{digest}.zip"


def _checked_name(name: str) -> str:
    try:
        require_package_name(name)
    except ValueError as error:
        raise UserError(str(error)) from error
    return name


def _is_version(text: str) -> bool:
    try:
        require_version(text)
    except ValueError:
        return False
    return True
