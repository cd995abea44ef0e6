"""Archives that are not what their manifest says."""

import io
import stat
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from farflung.envs.packages.archive import pack, unpack
from farflung.errors import PeerFault
from farflung.wire.canonical import sha256_hex
from farflung.wire.package import PackagedEnvironment, PackagedFile, PackageManifest

FILES = {"README.md": b"# Sheep", "src/a.py": b"A = 1\n", "src/b/rows.jsonl": b"{}\n" * 100}


def manifest_of(files: dict[str, bytes]) -> PackageManifest:
    return PackageManifest(
        name="mine",
        version="0.1.0",
        summary="",
        licence="MIT",
        verifier="function",
        sandbox="none",
        is_reproducible=True,
        environments=(PackagedEnvironment(name="mine", reference="a:environment"),),
        files=tuple(
            PackagedFile(path=path, num_bytes=len(content), sha256=sha256_hex(content))
            for path, content in sorted(files.items())
        ),
    )


MANIFEST = manifest_of(FILES)


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return target.getvalue()


def test_what_is_packed_comes_out_again_and_packs_to_the_same_bytes() -> None:
    data = pack(FILES)
    assert unpack(data, MANIFEST) == FILES
    assert pack(dict(reversed(FILES.items()))) == data


def test_a_path_that_the_manifest_does_not_have_is_refused_whatever_it_is() -> None:
    for path in ("../evil.py", "/etc/cron.d/evil", "src/c.py", "src/", "evil.pth"):
        with pytest.raises(PeerFault, match="are not the manifest's"):
            unpack(zipped(*FILES.items(), (path, b"x")), MANIFEST)


def test_a_missing_file_and_one_that_comes_twice_are_refused() -> None:
    with pytest.raises(PeerFault, match="are not the manifest's"):
        unpack(zipped(*list(FILES.items())[1:]), MANIFEST)
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = zipped(*FILES.items(), ("src/a.py", b"evil"))
    with pytest.raises(PeerFault, match="are not the manifest's"):
        unpack(twice, MANIFEST)


def test_a_link_is_refused_even_if_its_content_has_the_hash() -> None:
    link = zipfile.ZipInfo("src/a.py")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    others = [(path, content) for path, content in FILES.items() if path != "src/a.py"]
    with pytest.raises(PeerFault, match="not the plain file"):
        unpack(zipped(*others, (link, FILES["src/a.py"])), MANIFEST)


def test_other_content_of_the_same_length_is_refused() -> None:
    with pytest.raises(PeerFault, match="another hash"):
        unpack(zipped(*{**FILES, "src/a.py": b"A = 2\n"}.items()), MANIFEST)


def test_a_file_that_grows_beyond_its_declared_size_is_refused_unread() -> None:
    files = {**FILES, "src/a.py": b"\0" * (64 << 20)}
    data = zipped(*files.items())
    assert len(data) < 1 << 20
    with pytest.raises(PeerFault, match="not the plain file of 6 bytes"):
        unpack(data, MANIFEST)
    lying = data.replace((64 << 20).to_bytes(4, "little"), (6).to_bytes(4, "little"))
    with pytest.raises(PeerFault):
        unpack(lying, MANIFEST)


def test_a_directory_of_many_entries_is_refused_before_it_is_read() -> None:
    data = zipped(*((f"{number}.py", b"") for number in range(600)))
    with pytest.raises(PeerFault, match="an archive of 600 files"):
        unpack(data, MANIFEST)


@given(st.binary(max_size=400))
def test_random_bytes_are_no_archive(data: bytes) -> None:
    with pytest.raises(PeerFault):
        unpack(data, MANIFEST)


@given(st.data())
def test_a_changed_byte_gives_the_same_files_or_a_fault(data: st.DataObject) -> None:
    honest = pack(FILES)
    at = data.draw(st.integers(0, len(honest) - 1))
    forged = honest[:at] + bytes([data.draw(st.integers(0, 255))]) + honest[at + 1 :]
    try:
        files = unpack(forged, MANIFEST)
    except PeerFault:
        return
    assert files == FILES


@given(st.dictionaries(st.from_regex(r"\A[a-z]{1,8}\.py\Z"), st.binary(max_size=99), min_size=1, max_size=9))
def test_any_files_come_out_as_they_went_in(files: dict[str, bytes]) -> None:
    assert unpack(pack(files), manifest_of(files)) == files


def test_the_digest_covers_every_file() -> None:
    other = manifest_of({**FILES, "src/a.py": b"A = 2\n"})
    assert other.digest() != MANIFEST.digest()
    assert replace(MANIFEST, is_reproducible=False).digest() != MANIFEST.digest()
