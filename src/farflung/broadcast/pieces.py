"""Chunks of files that are in memory already, cut out when somebody takes one: no second copy of the weights."""

from collections.abc import Iterable, Iterator, Mapping

from farflung.sharding.plan import with_offsets
from farflung.wire.manifest import ManifestFile


class Pieces(Mapping[str, bytes]):
    """sha256 -> bytes of a chunk, copied at each look."""

    def __init__(self, places: Mapping[str, tuple[bytes, int, int]] | None = None) -> None:
        """
        Args:
            places: sha256 -> (whole file, first byte, number of bytes).
        """
        self.places = dict(places or {})

    @classmethod
    def of(cls, files: Iterable[ManifestFile], data: Mapping[str, bytes]) -> "Pieces":
        """All chunks of files, by their names in `data`."""
        return cls(
            {
                chunk.sha256: (data[file.name], start, chunk.num_bytes)
                for file in files
                for start, chunk in with_offsets(file)
            }
        )

    def with_those_of(self, other: "Pieces") -> "Pieces":
        return Pieces({**self.places, **other.places})

    def __getitem__(self, sha256: str) -> bytes:
        whole, start, num_bytes = self.places[sha256]
        return whole[start : start + num_bytes]

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)
