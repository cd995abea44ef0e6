"""The trainer's end of one sampler process."""

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import suppress

from farflung.errors import FarflungError
from farflung.local.messages import LENGTH, FromSampler, Settings, Work, decoder_of, to_frame

GRACE_S = 5.0
"""For a sampler that was hung up on; one in the middle of a slot notices between two steps of its engine."""


class SamplerDied(FarflungError):
    """The process ended, or hung, in the middle of its work."""


class SamplerProcess:
    """Started at once; it imports what it needs while nobody waits."""

    def __init__(self, name: str, memory_fd: int, num_threads: int) -> None:
        self.name = name
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = start_process((theirs.fileno(), memory_fd), num_threads)
        self._socket = ours
        self._decoder = decoder_of(FromSampler)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, message: Settings | Work) -> None:
        """Raises `SamplerDied`."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(sock=self._socket)
        writer = self._streams[1]
        try:
            writer.write(to_frame(message))
            await writer.drain()
        except OSError as error:
            raise SamplerDied(self._ending()) from error

    async def receive(self, within_s: float) -> FromSampler:
        """Raises `SamplerDied`."""
        assert self._streams is not None, "nothing was sent yet"
        reader = self._streams[0]
        try:
            async with asyncio.timeout(within_s):
                head = await reader.readexactly(LENGTH.size)
                message: FromSampler = self._decoder.decode(await reader.readexactly(*LENGTH.unpack(head)))
                return message
        except TimeoutError as error:
            raise SamplerDied(f"{self.name} gave no answer within {within_s:g} s") from error
        except (asyncio.IncompleteReadError, OSError) as error:
            raise SamplerDied(self._ending()) from error

    def kill(self) -> None:
        """At once."""
        self._process.kill()
        self.wait()

    def hang_up(self) -> None:
        """Tell it that nothing follows."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def wait(self) -> None:
        """Until it has ended; it is killed when that takes too long."""
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._streams is None:
            self._socket.close()
        else:
            self._streams[1].close()

    def _ending(self) -> str:
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return f"{self.name} hung up"
        return f"{self.name} was killed by signal {-code}" if code < 0 else f"{self.name} ended with code {code}"


def start_process(fds: tuple[int, int], num_threads: int) -> "subprocess.Popen[bytes]":
    """Its log goes where this process's errors go."""
    path = os.pathsep.join(entry for entry in sys.path if entry)  # it finds what this process finds
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "farflung.local.sampler", *map(str, fds)],
        stdin=subprocess.DEVNULL,
        pass_fds=fds,
        env={**os.environ, "OMP_NUM_THREADS": str(num_threads), "PYTHONPATH": path},
    )
