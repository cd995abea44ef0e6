"""Chunks that outlive a process, and lines for who waits."""

from pathlib import Path

import pytest

from farflung.broadcast.on_disk import kept_on
from farflung.broadcast.progress import EVERY_S, FIRST_S, Progress
from farflung.broadcast.shelf import Shelf
from farflung.wire.canonical import sha256_hex

CHUNKS = {sha256_hex(data): data for data in (b"a" * 1000, b"b" * 1000, b"c" * 1000)}
FIRST = next(iter(CHUNKS))


class Source:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, sha256: str, num_bytes: int) -> bytes:
        self.asked.append(sha256)
        return CHUNKS[sha256]


async def test_what_came_before_a_restart_is_not_fetched_again(tmp_path: Path) -> None:
    source = Source()
    for _ in range(2):  # another process each time: what it has is on disk alone
        get = kept_on(Shelf(tmp_path, 1 << 20), source)
        assert [await get(sha256, 1000) for sha256 in CHUNKS] == list(CHUNKS.values())
    assert source.asked == list(CHUNKS)


async def test_a_chunk_that_somebody_changed_on_disk_is_fetched_again(tmp_path: Path) -> None:
    source = Source()
    await kept_on(Shelf(tmp_path, 1 << 20), source)(FIRST, 1000)
    (tmp_path / FIRST[:2] / FIRST).write_bytes(b"x" * 1000)
    assert await kept_on(Shelf(tmp_path, 1 << 20), source)(FIRST, 1000) == CHUNKS[FIRST]
    assert source.asked == [FIRST, FIRST]


async def test_a_chunk_that_another_process_removed_is_fetched_again(tmp_path: Path) -> None:
    source, shelf = Source(), Shelf(tmp_path, 1 << 20)
    get = kept_on(shelf, source)
    await get(FIRST, 1000)
    (tmp_path / FIRST[:2] / FIRST).unlink()
    assert await get(FIRST, 1000) == CHUNKS[FIRST]


async def test_the_folder_keeps_to_its_size(tmp_path: Path) -> None:
    get = kept_on(Shelf(tmp_path, 2000), Source())
    for sha256 in CHUNKS:
        await get(sha256, 1000)
    assert {name for name in CHUNKS if Shelf(tmp_path, 2000).path(name)} == set(list(CHUNKS)[1:])


async def test_a_folder_that_cannot_be_written_costs_a_restart_and_nothing_now(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    get = kept_on(Shelf(tmp_path, 1 << 20), Source())
    (tmp_path / FIRST[:2]).write_bytes(b"a file where a folder is meant")
    assert await get(FIRST, 1000) == CHUNKS[FIRST]
    assert "it is not kept" in caplog.text


def test_a_short_fetch_says_nothing_and_a_long_one_now_and_then() -> None:
    short = Progress(1000, 0.0)
    assert [short.add(500, FIRST_S / 2), short.add(500, FIRST_S * 2)] == [None, None]
    long = Progress(200_000_000, 100.0)
    assert long.add(50_000_000, 104.0) == "50 of 200 MB, 25 %, 12.5 MB/s, 12 s left"
    assert long.add(1_000_000, 104.0 + EVERY_S / 2) is None
    assert long.add(49_000_000, 110.0) == "100 of 200 MB, 50 %, 10.0 MB/s, 10 s left"
