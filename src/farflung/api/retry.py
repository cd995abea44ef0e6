"""Back-off as a function of the attempt; the caller brings the sleep and the dice.

    delay(k) = uniform(0.5, 1) * min(max_delay_s, first_delay_s * 2**k)

The jitter keeps a thousand workers from coming back in step after an outage.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from farflung.errors import Transient

Result = TypeVar("Result")

MAX_DOUBLINGS = 32
"""Keeps the power finite when a caller retries for ever."""


def delay_s(attempt: int, *, first_delay_s: float, max_delay_s: float, draw: float) -> float:
    """Seconds to wait after failed attempt number `attempt` (0-based); `draw` lies in [0, 1)."""
    longest_s = min(max_delay_s, first_delay_s * 2.0 ** min(attempt, MAX_DOUBLINGS))
    return longest_s * (0.5 + 0.5 * draw)


async def retrying(
    call: Callable[[], Awaitable[Result]],
    *,
    max_attempts: int | None = 8,
    first_delay_s: float = 0.1,
    max_delay_s: float = 10.0,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    draw: Callable[[], float] = random.random,
    on_retry: Callable[[Transient, float], None] | None = None,
) -> Result:
    """Make the call until it does not raise `Transient`; only for calls that are idempotent.

    Args:
        call: makes one attempt.
        max_attempts: attempts in all; None = for ever.
        on_retry: told the error and the coming delay, for a log line.

    Raises:
        Transient: the last one, when the attempts are used up. Every other error passes at once.
    """
    attempt = 0
    while True:
        try:
            return await call()
        except Transient as error:
            attempt += 1
            if max_attempts is not None and attempt >= max_attempts:
                raise
            pause_s = delay_s(attempt - 1, first_delay_s=first_delay_s, max_delay_s=max_delay_s, draw=draw())
            if on_retry is not None:
                on_retry(error, pause_s)
            await sleep(pause_s)
