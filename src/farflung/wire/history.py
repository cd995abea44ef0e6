"""The public ledger: what happened in a pool, in segments that anybody may read, without the secrets of open epochs.

    ledger/events-<first>-<last>.jsonl.gz      one line per entry of the coordinator's journal
    ledger/epoch-<number>.json                 `EpochNotice` with the secret, once the epoch is over

A line is `{"sequence", "at_ms", "kind", "record"}`. Entries that say nothing to others (snapshots) have `null`, so
that a gap in the sequence is always a gap in what one was shown. This module does not know what records mean.
"""

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence

import msgspec

from farflung.errors import PeerFault

FOLDER = "ledger"
MAX_SEGMENT_BYTES = 64 << 20
"""Of a segment as it travels."""
MAX_PLAIN_BYTES = 512 << 20
"""Of a segment unpacked: a publication lists every tensor of a model."""
BAD_SEGMENT = "bad_segment"

_SEGMENT = re.compile(rf"{FOLDER}/events-(\d{{12}})-(\d{{12}})\.jsonl\.gz")
_EPOCH = re.compile(rf"{FOLDER}/epoch-(\d{{6,12}})\.json")


NOTHING = msgspec.Raw(b"null")
"""In place of the record of an entry that says nothing to others."""


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry."""

    sequence: int
    at_ms: int
    kind: str
    record: msgspec.Raw = NOTHING

    @property
    def has_record(self) -> bool:
        return bytes(self.record) != bytes(NOTHING)


def segment_key(first: int, last: int) -> str:
    return f"{FOLDER}/events-{first:012d}-{last:012d}.jsonl.gz"


def epoch_key(number: int) -> str:
    return f"{FOLDER}/epoch-{number:06d}.json"


def is_ledger_key(key: str) -> bool:
    return _SEGMENT.fullmatch(key) is not None or _EPOCH.fullmatch(key) is not None


def segments_of(keys: Sequence[str]) -> list[tuple[int, int, str]]:
    """(first, last, key) of the segments among keys, in order."""
    found = [(match, key) for key in keys if (match := _SEGMENT.fullmatch(key))]
    return sorted((int(match[1]), int(match[2]), key) for match, key in found)


def epochs_of(keys: Sequence[str]) -> dict[int, str]:
    """Number -> key of the revealed epochs among keys."""
    return {int(match[1]): key for key in keys if (match := _EPOCH.fullmatch(key))}


def write_segment(lines: Sequence[Line]) -> bytes:
    """The same lines give the same bytes."""
    return gzip.compress(b"".join(msgspec.json.encode(line) + b"\n" for line in lines), mtime=0)


def read_segment(data: bytes) -> Iterator[Line]:
    """The lines of somebody's segment.

    Raises:
        PeerFault: too large, damaged, or not lines of a ledger.
    """
    if len(data) > MAX_SEGMENT_BYTES:
        raise PeerFault(BAD_SEGMENT, f"{len(data)} bytes, at most {MAX_SEGMENT_BYTES} allowed")
    unpacking = zlib.decompressobj(wbits=31)  # gzip
    try:
        plain = unpacking.decompress(data, MAX_PLAIN_BYTES)
    except zlib.error as error:
        raise PeerFault(BAD_SEGMENT, str(error)) from error
    if not unpacking.eof:
        raise PeerFault(BAD_SEGMENT, f"cut short, or more than {MAX_PLAIN_BYTES} bytes unpacked")
    for number, text in enumerate(plain.splitlines()):
        try:
            yield msgspec.json.decode(text, type=Line)
        except msgspec.MsgspecError as error:
            raise PeerFault(BAD_SEGMENT, f"line {number + 1}: {error}") from error
