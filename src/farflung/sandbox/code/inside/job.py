"""The one task of a sandbox, as it crosses the wall: fields with names.

    job = (name frame, kind byte + value frame) ...

Texts cross as they are, any other value as JSON.
"""

from __future__ import annotations

from farflung.sandbox.code.inside.frames import FrameBuffer, frame
from farflung.sandbox.code.inside.json_text import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_TEXT, _JSON = b"t", b"j"


def pack(job: Mapping[str, object]) -> bytes:
    """The inverse of `unpack`."""
    return b"".join(frame(name.encode()) + frame(_encode(value)) for name, value in job.items())


def unpack(data: bytes) -> dict[str, Any]:
    """Raises nothing for what `pack` made."""
    parts = FrameBuffer(len(data)).feed(data)
    return {name.decode(): _decode(value) for name, value in zip(parts[::2], parts[1::2], strict=True)}


def _encode(value: object) -> bytes:
    if isinstance(value, str):
        return _TEXT + value.encode("utf-8", "surrogatepass")
    return _JSON + dumps(value)


def _decode(data: bytes) -> Any:
    return data[1:].decode("utf-8", "surrogatepass") if data[:1] == _TEXT else loads(data[1:])
