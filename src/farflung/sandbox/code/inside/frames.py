"""Messages on a stream: four bytes of length, big-endian, then the bytes. Limits before memory."""

import os
import struct

LENGTH = struct.Struct(">I")


class FrameTooLong(ValueError):
    """A message announces more bytes than are allowed."""


def frame(payload: bytes) -> bytes:
    """The message as it goes over the stream."""
    return LENGTH.pack(len(payload)) + payload


def write_all(descriptor: int, data: bytes) -> None:
    """Raises `OSError`."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def read_frame(descriptor: int, max_bytes: int) -> bytes:
    """The next message. Raises `EOFError` and `FrameTooLong`."""
    (length,) = LENGTH.unpack(_read_exactly(descriptor, LENGTH.size))
    if length > max_bytes:
        raise FrameTooLong(f"a message of {length} bytes; at most {max_bytes} are allowed")
    return _read_exactly(descriptor, length)


def _read_exactly(descriptor: int, num_bytes: int) -> bytes:
    parts = bytearray()
    while len(parts) < num_bytes:
        part = os.read(descriptor, min(num_bytes - len(parts), 1 << 20))
        if not part:
            raise EOFError("the other end is gone")
        parts += part
    return bytes(parts)


class FrameBuffer:
    """Cuts messages out of pieces as they arrive."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Messages that are complete now. Raises `FrameTooLong`."""
        self._data += data
        found = []
        while len(self._data) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._data)
            if length > self._max_bytes:
                raise FrameTooLong(f"a message of {length} bytes; at most {self._max_bytes} are allowed")
            end = LENGTH.size + length
            if len(self._data) < end:
                break
            found.append(bytes(self._data[LENGTH.size : end]))
            del self._data[:end]
        return found
