"""The engine's thread, and asynchronous streams of tokens out of it.

    handlers (event loop) --submit, cancel--> queue --> thread: LiveBatch.step --> one call back per step --> streams

Does not know HTTP or text.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from farflung.engine.live import LiveBatch, LiveRequest, LiveToken
from farflung.errors import OurFault

logger = logging.getLogger(__name__)


class Busy(Exception):
    """Too many completions wait already."""


@dataclass(eq=False, slots=True)
class _Stream:
    request: LiveRequest
    tokens: "asyncio.Queue[LiveToken | OurFault]" = field(default_factory=asyncio.Queue)
    handle: int | None = None
    """Known to the thread alone."""


class EngineLoop:
    """Start it inside a running event loop; `close` ends the thread."""

    def __init__(self, batch: LiveBatch, *, max_waiting: int) -> None:
        self._batch, self._max_waiting = batch, max_waiting
        self._loop = asyncio.get_running_loop()
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._streams: dict[int, _Stream] = {}
        self._num_open = 0
        self.fault: OurFault | None = None
        """Why nothing can be served any more."""
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def num_open(self) -> int:
        """Completions in flight or waiting."""
        return self._num_open

    async def stream(self, request: LiveRequest) -> AsyncGenerator[LiveToken, None]:
        """Tokens as they are drawn. Leaving early cancels the rest.

        Raises:
            Busy: too many are waiting.
            OurFault: the engine is broken.
        """
        if self.fault is not None:
            raise self.fault
        if self._num_open >= self._batch.max_rows + self._max_waiting:
            raise Busy
        stream = _Stream(request)
        self._num_open += 1
        self._commands.put(lambda: self._begin(stream))
        try:
            while True:
                token = await stream.tokens.get()
                if isinstance(token, OurFault):
                    raise token
                yield token
                if token.stop_reason is not None:
                    return
        finally:
            self._num_open -= 1
            self._commands.put(lambda: self._forget(stream))

    async def close(self) -> None:
        """The thread ends after the step in hand."""
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join)

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            is_idle = not self._streams
            try:
                while True:
                    command = self._commands.get(block=is_idle)
                    if command is None:
                        return
                    command()
                    is_idle = False
            except queue.Empty:
                pass
            self._step()

    def _step(self) -> None:
        try:
            drawn = self._batch.step()
        except OurFault as error:
            self.fault = error
            self._deliver([(stream, error) for stream in self._streams.values()])
            self._streams.clear()
            return
        self._deliver([(self._streams[handle], token) for handle, token in drawn.items()])
        for handle, token in drawn.items():
            if token.stop_reason is not None:
                del self._streams[handle]

    def _deliver(self, items: "list[tuple[_Stream, LiveToken]] | list[tuple[_Stream, OurFault]]") -> None:
        def hand_out() -> None:
            for stream, item in items:
                stream.tokens.put_nowait(item)

        if items:
            self._loop.call_soon_threadsafe(hand_out)

    def _begin(self, stream: _Stream) -> None:
        if self.fault is not None:
            self._deliver([(stream, self.fault)])
            return
        stream.handle = self._batch.add(stream.request)
        self._streams[stream.handle] = stream

    def _forget(self, stream: _Stream) -> None:
        if stream.handle is not None and self._streams.pop(stream.handle, None) is not None:
            self._batch.cancel(stream.handle)
