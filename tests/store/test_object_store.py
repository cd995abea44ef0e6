"""The same behaviour in a folder and in memory; what only a folder has comes below."""

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import GenericError

from farflung.errors import OurFault, PeerFault, Transient, UserError
from farflung.store.object_store import ObjectStore


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return ObjectStore(str(tmp_path / "store") if request.param == "folder" else "memory://")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one mebibyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_what_was_put_is_got_with_its_size(store: ObjectStore) -> None:
    store.put("rollouts/a.parquet", b"abc")
    assert store.get("rollouts/a.parquet", max_bytes=3) == b"abc"
    assert store.size("rollouts/a.parquet") == 3


def test_empty_objects_and_large_ones_come_back_whole(store: ObjectStore) -> None:
    large = os.urandom(12 << 20)
    store.put("empty", b"")
    store.put("large", large)
    assert store.get("empty", max_bytes=0) == b""
    assert store.get("large", max_bytes=len(large)) == large


def test_an_absent_key_is_a_key_error_and_has_no_size(store: ObjectStore) -> None:
    with pytest.raises(KeyError):
        store.get("nowhere", max_bytes=10)
    assert store.size("nowhere") is None
    store.delete("nowhere")


def test_an_object_larger_than_the_reader_allows_is_the_writers_fault(store: ObjectStore) -> None:
    store.put("big", b"12345")
    with pytest.raises(PeerFault, match="file_too_large: big has 5 bytes, at most 4 allowed"):
        store.get("big", max_bytes=4)


def test_the_same_bytes_again_are_a_no_op_and_other_bytes_are_refused(store: ObjectStore) -> None:
    store.put("k", b"one")
    store.put("k", b"one")
    for other in (b"two", b"longer", b""):
        with pytest.raises(OurFault, match="immutable"):
            store.put("k", other)
    assert store.get("k", max_bytes=3) == b"one"


def test_keys_are_listed_sorted_under_their_folder_only(store: ObjectStore) -> None:
    for key in ("b/2", "b/1", "b/c/3", "bb/4", "a"):
        store.put(key, key.encode())
    assert store.keys("b") == store.keys("b/") == ["b/1", "b/2", "b/c/3"]
    assert store.keys("") == ["a", "b/1", "b/2", "b/c/3", "bb/4"]
    assert store.keys("nothing") == []


def test_a_deleted_key_is_absent_and_free_for_other_bytes(store: ObjectStore) -> None:
    store.put("k", b"one")
    store.delete("k")
    assert store.keys("") == []
    store.put("k", b"two")
    assert store.get("k", max_bytes=3) == b"two"


STRANGE_KEYS = [
    "",
    "/",
    "/etc/passwd",
    "a/",
    "a//b",
    ".",
    "..",
    "../x",
    "a/../../x",
    "a/./b",
    "a\\b",
    "é",
    "a#1",
    "${HOME}",
    "a%2e%2e",
    "~",
]


@pytest.mark.parametrize("key", [*STRANGE_KEYS, "a b", "a\0b", "a\n", "a" * 257, "\uff0e\uff0e/x"])
def test_no_key_is_a_path_out_of_the_store(store: ObjectStore, key: str) -> None:
    calls = [lambda: store.put(key, b""), lambda: store.get(key, max_bytes=1), lambda: store.size(key)]
    for call in [*calls, lambda: store.delete(key)]:
        with pytest.raises(PeerFault, match="malformed_record"):
            call()
    assert store.keys("") == []


def test_of_concurrent_writers_one_wins_and_readers_see_whole_objects_only(store: ObjectStore) -> None:
    contents = [bytes([number]) * (1 << 20) for number in range(6)]
    start = threading.Barrier(len(contents) + 1)
    outcomes: list[str] = []
    seen: list[bytes] = []

    def write(data: bytes) -> None:
        start.wait()
        try:
            store.put("contested", data)
            outcomes.append("won")
        except OurFault:
            outcomes.append("refused")

    def read() -> None:
        start.wait()
        while not seen:
            try:
                seen.append(store.get("contested", max_bytes=1 << 20))
            except KeyError:
                continue

    threads = [threading.Thread(target=write, args=(data,)) for data in contents] + [threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 5 + ["won"]
    assert seen == [store.get("contested", max_bytes=1 << 20)]
    assert seen[0] in contents


def test_concurrent_writers_of_the_same_bytes_all_succeed(store: ObjectStore) -> None:
    errors: list[Exception] = []

    def write() -> None:
        try:
            store.put("same", b"x" * 100_000)
        except (OurFault, Transient) as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_folder_store_opens_by_path_and_by_url_with_the_same_content(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    ObjectStore(str(folder)).put("k", b"v")
    assert ObjectStore(folder.as_uri()).get("k", max_bytes=1) == b"v"
    assert (folder / "k").read_bytes() == b"v"


def test_what_a_killed_writer_left_behind_is_not_a_key_and_blocks_nobody(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    (tmp_path / "k#1").write_bytes(b"half of")
    assert store.keys("") == []
    store.put("k", b"whole")
    assert store.get("k", max_bytes=5) == b"whole"


def test_a_key_below_a_file_or_on_a_folder_is_refused(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    store.put("a/b", b"1")
    with pytest.raises((OurFault, Transient)):
        store.put("a", b"2")
    with pytest.raises(OurFault):
        store.put("a/b/c", b"3")


def test_a_file_and_its_folders_are_synced_before_put_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = os.fsync

    def record(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    monkeypatch.setattr(os, "fsync", record)
    ObjectStore(str(tmp_path)).put("a/b", b"1")
    assert synced == [str(tmp_path / "a" / "b"), str(tmp_path / "a"), str(tmp_path)]


def test_a_full_disk_is_one_clear_sentence_and_leaves_nothing_visible(small_disk: Path) -> None:
    store = ObjectStore(str(small_disk))
    with pytest.raises(OurFault, match=r"^the disk of .* is full: free some space and start again$"):
        store.put("k", bytes(2 << 20))
    assert store.keys("") == []
    store.put("k", b"fits")
    assert store.get("k", max_bytes=4) == b"fits"


@pytest.mark.parametrize(
    ("text", "blame", "sentence"),
    [
        ("Unable to copy data to file: No space left on device (os error 28)", OurFault, "is full"),
        ("Unable to copy data to file: Disk quota exceeded (os error 122)", OurFault, "is full"),
        ("Unable to copy data to file: Input/output error (os error 5)", OurFault, "Input/output error"),
    ],
)
def test_a_failing_disk_is_our_own_fault(
    text: str, blame: type[Exception], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise GenericError(f"{text}\n\nDebug source: ...")

    store = ObjectStore(str(tmp_path))
    monkeypatch.setattr(obstore, "put", fail)
    with pytest.raises(blame, match=sentence) as caught:
        store.put("k", b"")
    assert "\n" not in str(caught.value)


def test_a_remote_store_out_of_reach_is_transient() -> None:
    store = ObjectStore("memory://")

    def unreachable() -> None:
        raise GenericError("error sending request: connection refused")

    with pytest.raises(Transient, match="connection refused"):
        store._call(unreachable)


@pytest.mark.parametrize("url", ["ftp://host/x", "foo:bar", "https://host/x", "file://folder/x"])
def test_an_unknown_kind_of_url_is_the_users_error(url: str) -> None:
    with pytest.raises(UserError, match="use a folder, memory://"):
        ObjectStore(url)


def test_a_folder_that_cannot_be_made_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match="cannot be opened"):
        ObjectStore(str(tmp_path / "file" / "store"))


def test_cloud_urls_open_the_matching_back_end() -> None:
    assert "S3Store" in repr(ObjectStore("s3://bucket/prefix")._store)
