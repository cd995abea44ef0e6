"""What is wrong with a file is named down to its bytes."""

import pytest

from farflung.sharding.findings import CHUNK_DIGEST, FILE_DIGEST, FILE_SIZE, MISSING, read_file, whole_findings
from farflung.sharding.plan import cut
from farflung.wire.canonical import sha256_hex
from farflung.wire.manifest import Chunk

DATA = bytes(range(10))
FILE = cut("f", DATA, 4)
CHUNKS = {sha256_hex(DATA[start : start + 4]): DATA[start : start + 4] for start in (0, 4, 8)}


def test_a_true_file_is_read_whole() -> None:
    read = read_file(3, FILE, lambda chunk: CHUNKS[chunk.sha256])
    assert (read.data, read.findings) == (bytearray(DATA), ())


def test_every_wrong_chunk_is_named_and_not_only_the_first() -> None:
    def get(chunk: Chunk) -> bytes | None:
        return {0: b"evil", 1: CHUNKS[chunk.sha256], 2: None}[chunk.index]

    read = read_file(3, FILE, get)
    assert read.data is None
    assert [(each.reason, each.chunk, each.first_byte, each.end_byte) for each in read.findings] == [
        (CHUNK_DIGEST, 0, 0, 4),
        (MISSING, 2, 8, 10),
    ]
    assert str(read.findings[1]) == (
        f"version 3, f, chunk 2, bytes 8 to 10: missing: there is no chunk {FILE.chunks[2].sha256}"
    )


def test_true_chunks_of_another_file_are_a_wrong_file() -> None:
    lied = FILE.__class__(name="f", num_bytes=10, sha256="00" * 32, chunks=FILE.chunks)
    assert [each.reason for each in read_file(3, lied, lambda chunk: CHUNKS[chunk.sha256]).findings] == [FILE_DIGEST]


@pytest.mark.parametrize(
    ("data", "reasons"),
    [
        (DATA, []),
        (DATA[:5] + b"!" + DATA[6:], [(CHUNK_DIGEST, 1)]),
        (DATA[:8], [(FILE_SIZE, None), (CHUNK_DIGEST, 2)]),
        (DATA + b"!", [(FILE_SIZE, None)]),
        (b"", [(FILE_SIZE, None), (CHUNK_DIGEST, 0), (CHUNK_DIGEST, 1), (CHUNK_DIGEST, 2)]),
    ],
)
def test_a_whole_file_is_searched_for_the_chunk_that_differs(
    data: bytes, reasons: list[tuple[str, int | None]]
) -> None:
    assert [(each.reason, each.chunk) for each in whole_findings(3, FILE, data)] == reasons
