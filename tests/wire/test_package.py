"""What a package of environments may be called and hold."""

import pytest
from msgspec.structs import replace

from farflung.wire.canonical import sha256_hex
from farflung.wire.package import (
    MAX_FILE_BYTES,
    PackagedEnvironment,
    PackagedFile,
    PackageManifest,
    require_path,
    version_order,
)


def file(path: str, num_bytes: int = 3) -> PackagedFile:
    return PackagedFile(path=path, num_bytes=num_bytes, sha256=sha256_hex(b"abc"))


PACKAGE = PackageManifest(
    name="mine",
    version="0.1.0",
    summary="",
    licence="MIT",
    verifier="function",
    sandbox="none",
    is_reproducible=True,
    environments=(PackagedEnvironment(name="mine", reference="mine:environment"),),
    files=(file("src/mine.py"),),
)


@pytest.mark.parametrize(
    "path",
    [
        "../evil.py",
        "/etc/evil.py",
        "src/../../evil.py",
        "src//evil.py",
        "./evil.py",
        "src/",
        "",
        "src\\evil.py",
        "C:evil.py",
        "src/evil.pth",
        "src/evil.so",
        "src/evil.pyc",
        "src/evil",
        "src/.hidden.py",
        "src/evil.py\n",
        "src/evil.py\x00.md",
        "a/" * 9 + "b.py",
        "src/\u0435vil.py",
        "-rf.py",
    ],
)
def test_a_path_out_of_the_folder_or_of_another_kind_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        require_path(path)


@pytest.mark.parametrize("path", ["src/mine.py", "README.md", "LICENSE", "src/mine/data/rows.jsonl.gz", "COPYING.txt"])
def test_modules_data_and_licences_are_what_a_package_holds(path: str) -> None:
    require_path(path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "from 1 to"),
        ((file("b.py"), file("a.py")), "sorted by path"),
        ((file("A.py"), file("a.py")), "upper and lower case"),
        ((file("a.py"), file("a.py/b.py")), "a file and a folder"),
        ((file("a.py"), file("a.py/c/b.py")), "a file and a folder"),
        (tuple(file(f"{letter}.py", MAX_FILE_BYTES) for letter in "abc"), "bytes of files"),
    ],
)
def test_files_that_cannot_lie_in_one_folder_are_refused(files: tuple[PackagedFile, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PACKAGE, files=files)


@pytest.mark.parametrize("name", ["", "Mine", "my_env", "-mine", "mine-", "my--env", "m" * 65, "m\u0456ne", "mine\n"])
def test_a_name_has_one_spelling(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        replace(PACKAGE, name=name)


@pytest.mark.parametrize("version", ["", "1", "1.0rc1", "01.0", "1.0.0.0.0", "v1.0", "1.0\n", "1.-1", "1.0000000"])
def test_a_version_has_one_spelling(version: str) -> None:
    with pytest.raises(ValueError, match="version"):
        replace(PACKAGE, version=version)


def test_versions_are_ordered_by_number() -> None:
    assert sorted(["0.10", "0.9.1", "0.9"], key=version_order) == ["0.9", "0.9.1", "0.10"]


@pytest.mark.parametrize("reference", ["os", "os:", ":x", "a.b", "a:b.c", "a b:c", "a:b()", "a:b\n"])
def test_an_entry_point_is_a_module_and_an_object(reference: str) -> None:
    with pytest.raises(ValueError, match="entry point"):
        PackagedEnvironment(name="mine", reference=reference)
