"""Weights of several versions in one piece of memory that the trainer writes and its samplers read.

    base | place 0 | place 1 | ... | place n - 1        each place holds the safetensors bytes of one version

The base is what lies below adapters and is the same for every version; empty when versions are whole weights.

A version stays in its place while anybody may read it; who may is the caller's to know. The memory has no name and no
file: it goes when the last process goes, however that ends.
"""

import mmap
import os
import tempfile
from collections.abc import Collection


class SharedWeights:
    """The trainer's side."""

    def __init__(self, num_places: int) -> None:
        """
        Args:
            num_places: versions that fit. All have the size of the first that is written.
        """
        self._num_places = num_places
        self._num_bytes = 0
        self.num_base_bytes = 0
        """From the beginning of the memory."""
        self._place_of: dict[int, int] = {}
        self._memory: mmap.mmap | None = None
        self.fd = _nameless_memory()
        """What a sampler inherits, and maps once there is a version."""

    @property
    def versions(self) -> Collection[int]:
        """Those that can be read now."""
        return self._place_of.keys()

    def lay_base(self, data: bytes) -> None:
        """Before the first version is written; later calls change nothing."""
        if self._memory is None:
            self.num_base_bytes = len(data)
            os.ftruncate(self.fd, len(data))
            with mmap.mmap(self.fd, len(data)) as memory:
                memory[:] = data

    def write(self, version: int, data: bytes, *, needed: Collection[int]) -> None:
        """Put a version where one lies that nobody needs.

        Args:
            needed: versions that stay.
        """
        if self._memory is None:
            self._num_bytes = len(data)
            total = self.num_base_bytes + self._num_places * self._num_bytes
            os.ftruncate(self.fd, total)
            self._memory = mmap.mmap(self.fd, total)
        for other in [held for held in self._place_of if held not in needed or held == version]:
            del self._place_of[other]
        free = set(range(self._num_places)) - set(self._place_of.values())
        assert free, f"version {version}: all {self._num_places} places are needed, by {sorted(self._place_of)}"
        assert len(data) == self._num_bytes, f"version {version} has {len(data)} bytes, not {self._num_bytes}"
        place = min(free)
        start = self.num_base_bytes + place * self._num_bytes
        self._memory[start : start + self._num_bytes] = data
        self._place_of[version] = place

    def where(self, version: int) -> tuple[int, int]:
        """(offset, bytes) of a version."""
        return self.num_base_bytes + self._place_of[version] * self._num_bytes, self._num_bytes

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
        os.close(self.fd)


def map_for_reading(fd: int) -> mmap.mmap:
    """The sampler's side: the whole memory."""
    return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)


def _nameless_memory() -> int:
    if hasattr(os, "memfd_create"):  # Linux
        return os.memfd_create("farflung-weights")
    with tempfile.TemporaryFile() as file:  # the system removes its name at once
        return os.dup(file.fileno())
