"""Publishing and fetching, and indexes that lie."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from farflung.envs.packages.index import Index
from farflung.envs.packages.project import Package, read_project
from farflung.errors import PeerFault, UserError
from farflung.store.object_store import ObjectStore

from .conftest import MODULE, PROJECT, MakeProject


def test_what_is_published_is_fetched(make_project: MakeProject, index: Index) -> None:
    package = read_project(make_project())
    digest = index.publish(package)
    assert digest == package.manifest.digest()
    assert index.publish(package) == digest
    assert (index.names(), index.versions("count-sheep")) == (["count-sheep"], ["0.1.0"])
    assert index.fetch(index.manifest("count-sheep", "0.1.0")) == package


def test_a_published_version_never_changes(make_project: MakeProject, index: Index) -> None:
    index.publish(read_project(make_project()))
    changed = read_project(make_project("other", **{"src/count_sheep.py": MODULE + "# better\n"}))
    with pytest.raises(UserError, match=r"count-sheep 0\.1\.0 is published.*raise the version"):
        index.publish(changed)


def test_versions_are_listed_by_number_and_odd_names_passed_over(make_project: MakeProject, tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path / "index"))
    index = Index(store, "here")
    for number, version in enumerate(("0.9.0", "0.10.0", "0.2.0")):
        project = PROJECT.replace("0.1.0", version)
        index.publish(read_project(make_project(f"p{number}", **{"pyproject.toml": project})))
    store.put("packages/count-sheep/latest.json", b"{}")
    assert index.versions("count-sheep") == ["0.2.0", "0.9.0", "0.10.0"]


def test_what_is_not_there_is_answered_with_what_is(make_project: MakeProject, index: Index) -> None:
    index.publish(read_project(make_project()))
    with pytest.raises(UserError, match=r"has no count-sheep 0\.2\.0; it has 0\.1\.0"):
        index.manifest("count-sheep", "0.2.0")
    with pytest.raises(UserError, match=r"has no goats 0\.1\.0; it has nothing by that name"):
        index.manifest("goats", "0.1.0")


@pytest.mark.parametrize("name", ["../x", "a/b", "", "x" * 300, "..", "A"])
def test_a_name_is_never_a_path(index: Index, name: str) -> None:
    with pytest.raises(UserError, match="name"):
        index.versions(name)
    with pytest.raises(UserError, match="name"):
        index.manifest(name, "0.1.0")


def mallory(tmp_path: Path, package: Package, **written: bytes) -> Index:
    """An index whose owner writes what he likes under the keys of an honest package."""
    store = ObjectStore(str(tmp_path / "mallory"))
    index = Index(store, "mallory")
    index.publish(package)
    for kind, data in written.items():
        key = "packages/count-sheep/0.1.0.json" if kind == "manifest" else f"archives/{package.manifest.digest()}.zip"
        store.delete(key)
        store.put(key, data)
    return index


def test_a_manifest_of_another_package_is_refused(make_project: MakeProject, tmp_path: Path) -> None:
    package = read_project(make_project())
    other = replace(package.manifest, version="9.9.9")
    index = mallory(tmp_path, package, manifest=other.to_bytes())
    with pytest.raises(PeerFault, match=r"gives count-sheep 9\.9\.9"):
        index.manifest("count-sheep", "0.1.0")


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\xff", b"x" * (1 << 20) + b"y"], ids=["empty", "object", "junk", "huge"]
)
def test_a_manifest_that_is_none_is_refused(make_project: MakeProject, tmp_path: Path, data: bytes) -> None:
    index = mallory(tmp_path, read_project(make_project()), manifest=data)
    with pytest.raises(PeerFault):
        index.manifest("count-sheep", "0.1.0")


def test_an_archive_with_other_files_is_refused(make_project: MakeProject, tmp_path: Path) -> None:
    package = read_project(make_project())
    index = mallory(tmp_path, package, archive=b"PK\x05\x06" + bytes(18))
    with pytest.raises(PeerFault, match="archive"):
        index.fetch(package.manifest)


def test_an_archive_that_is_missing_is_said_so(make_project: MakeProject, tmp_path: Path) -> None:
    package = read_project(make_project())
    store = ObjectStore(str(tmp_path / "index"))
    index = Index(store, "here")
    index.publish(package)
    store.delete(f"archives/{package.manifest.digest()}.zip")
    with pytest.raises(UserError, match="has no archive"):
        index.fetch(package.manifest)
