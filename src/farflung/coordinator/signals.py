"""Long polls: wait until a question has an answer, woken when something happened that may bring one."""

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import TypeVar

Answer = TypeVar("Answer")


class Topic(Enum):
    """What a caller can wait for."""

    VERSIONS = auto()
    CAPACITY = auto()
    JUDGING = auto()
    OUTCOMES = auto()


class Switchboard:
    """One event for each topic, replaced whenever it has rung."""

    def __init__(self) -> None:
        self._bells = {topic: asyncio.Event() for topic in Topic}
        self._is_open = True

    def ring(self, topic: Topic) -> None:
        """Wake everyone who waits on the topic; they look again."""
        bell, self._bells[topic] = self._bells[topic], asyncio.Event()
        bell.set()

    def close(self) -> None:
        """From now on nobody waits."""
        self._is_open = False
        for topic in Topic:
            self.ring(topic)

    async def wait_for(self, topic: Topic, ask: Callable[[], Answer | None], wait_s: float) -> Answer | None:
        """Ask until the answer is not None, for `wait_s` seconds at most. `ask` is synchronous and cheap."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_s
        while True:
            bell = self._bells[topic]
            answer = ask()
            left_s = deadline_s - loop.time()
            if answer is not None or left_s <= 0 or not self._is_open:
                return answer
            try:
                async with asyncio.timeout(left_s):
                    await bell.wait()
            except TimeoutError:
                return ask()
