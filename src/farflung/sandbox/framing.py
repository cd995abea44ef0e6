"""One JSON value a frame over a stream socket: four bytes of length, big-endian, then that many bytes of UTF-8.

    frame = length (4 bytes) | JSON

The length is checked against the reader's limit before anything is read or parsed. This module does not know what the
values mean; it imports the standard library only.
"""

import json
import socket
import time
from typing import Any

_LENGTH_BYTES = 4


class FrameError(Exception):
    """The other side sent a frame that is too long, cut short, or no JSON, or sent none in time."""


def send_frame(channel: socket.socket, value: Any, *, deadline_s: float | None = None) -> None:
    """Send `value` whole.

    Args:
        deadline_s: on the monotonic clock; None waits for ever.

    Raises:
        OSError: the other side is gone, or did not take it in time (`TimeoutError`).
    """
    body = json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    channel.settimeout(_left_s(deadline_s))
    channel.sendall(len(body).to_bytes(_LENGTH_BYTES, "big") + body)


def receive_frame(channel: socket.socket, max_bytes: int, *, deadline_s: float | None = None) -> Any:
    """The next value; None (never sent as a value) when the other side closed between frames.

    Raises:
        FrameError: too long, cut short, no JSON.
        OSError: the connection broke, or nothing came in time (`TimeoutError`).
    """
    header = _receive(channel, _LENGTH_BYTES, deadline_s)
    if not header:
        return None
    length = int.from_bytes(header, "big")
    if len(header) < _LENGTH_BYTES or length > max_bytes:
        raise FrameError(f"a frame of {length} bytes; at most {max_bytes} are read")
    body = _receive(channel, length, deadline_s)
    if len(body) < length:
        raise FrameError("a frame was cut short")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError("a frame holds no JSON") from error


def _receive(channel: socket.socket, num_bytes: int, deadline_s: float | None) -> bytes:
    """Exactly `num_bytes`, or fewer where the stream ends."""
    parts = bytearray()
    while len(parts) < num_bytes:
        channel.settimeout(_left_s(deadline_s))
        part = channel.recv(num_bytes - len(parts))
        if not part:
            break
        parts += part
    return bytes(parts)


def _left_s(deadline_s: float | None) -> float | None:
    if deadline_s is None:
        return None
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the deadline has passed")
    return left_s
