"""What a transport is to relays and clients: three questions to one server, whatever carries them.

`servers.Servers` asks over HTTP. Another one, for relays that nobody can connect to from outside, has to keep what it
keeps: no more bytes are read than allowed, no answer is waited for without end, and nothing that comes is believed.
"""

from typing import Protocol

from farflung.wire.manifest import Manifest


class Transport(Protocol):
    """A server is named by text that the transport understands, such as a URL.

    All raise `Transient` when the server does not answer or has not got it now, `PeerFault` when its answer breaks the
    protocol.
    """

    async def chunk(self, server: str, sha256: str, num_bytes: int) -> bytes | bytearray:
        """A chunk's bytes, unchecked but for their number."""
        ...

    async def latest_manifest(self, server: str, newer_than: int, wait_s: float) -> Manifest | None:
        """The newest version above `newer_than`; None when `wait_s` passed first."""
        ...

    async def manifest(self, server: str, version: int) -> Manifest | None:
        """The manifest of a version; None if it is not there."""
        ...
