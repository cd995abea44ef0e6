"""One end of a transfer over `iroh`, in an environment that has it and nothing of ours.

python iroh_child.py serve CHUNK_BYTES IS_REPAIRED             prints its ticket, later its CPU-seconds
python iroh_child.py fetch CHUNK_BYTES IS_REPAIRED TICKET N C  prints seconds and CPU-seconds of N chunks, C at a time

Two endpoints on loopback, no relay servers, no discovery. Repaired: the binding copies arguments from Python byte by
byte in an interpreted loop; one copy takes its place.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import sys
import time
from typing import Any

import iroh
from iroh import iroh_ffi

ALPN = b"chunks/1"


def repair() -> None:
    def write(self: Any, value: bytes) -> None:
        with self._reserve(len(value)):
            ctypes.memmove(ctypes.addressof(self.rbuf.data.contents) + self.rbuf.len, bytes(value), len(value))

    iroh_ffi._UniffiRustBufferBuilder.write = write  # noqa: SLF001 (it has no other way in)


async def endpoint() -> iroh.Endpoint:
    iroh_ffi.uniffi_set_event_loop(asyncio.get_running_loop())
    return await iroh.Endpoint.bind(
        iroh.EndpointOptions(
            preset=iroh.preset_minimal(),
            relay_mode=iroh.RelayMode.disabled(),
            bind_addr="127.0.0.1:0",
            alpns=[ALPN],
        )
    )


async def serve(chunk_bytes: int) -> None:
    chunk = os.urandom(chunk_bytes)
    here = await endpoint()
    say(ticket=str(iroh_ffi.EndpointTicket.from_addr(here.addr())))
    incoming = await here.accept_next()
    connection = await (await incoming.accept()).connect()
    answers = []

    async def answer(stream: iroh.BiStream) -> None:
        await stream.recv().read_to_end(64)
        await stream.send().write_all(chunk)
        await stream.send().finish()

    with contextlib.suppress(iroh.IrohError):  # raised when the other end leaves
        while True:
            answers.append(asyncio.create_task(answer(await connection.accept_bi())))
    say(cpu_s=time.process_time())


async def fetch(chunk_bytes: int, ticket: str, num_chunks: int, num_concurrent: int) -> None:
    here = await endpoint()
    connection = await here.connect(iroh_ffi.EndpointTicket.from_string(ticket).endpoint_addr(), ALPN)
    gate = asyncio.Semaphore(num_concurrent)

    async def get() -> None:
        async with gate:
            stream = await connection.open_bi()
            await stream.send().write_all(b"?")
            await stream.send().finish()
            assert len(await stream.recv().read_to_end(chunk_bytes + 1)) == chunk_bytes

    started_s, started_cpu_s = time.monotonic(), time.process_time()
    await asyncio.gather(*(get() for _ in range(num_chunks)))
    say(took_s=time.monotonic() - started_s, cpu_s=time.process_time() - started_cpu_s)
    await here.close()


def say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    role, chunk_bytes, is_repaired, *rest = sys.argv[1:]
    if is_repaired == "1":
        repair()
    if role == "serve":
        asyncio.run(serve(int(chunk_bytes)))
    else:
        asyncio.run(fetch(int(chunk_bytes), rest[0], int(rest[1]), int(rest[2])))
