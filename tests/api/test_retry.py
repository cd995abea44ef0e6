"""Back-off: how long, how often, and for which errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.api.errors import Refused
from farflung.api.retry import delay_s, retrying
from farflung.errors import Transient


class Flaky:
    """Fails a number of times."""

    def __init__(self, num_failures: int, error: Exception | None = None) -> None:
        self.num_calls = 0
        self._num_failures = num_failures
        self._error = error or Transient("away")

    async def __call__(self) -> str:
        self.num_calls += 1
        if self.num_calls <= self._num_failures:
            raise self._error
        return "done"


class Sleeps:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def test_passing_trouble_is_retried_with_doubling_pauses() -> None:
    call, sleep = Flaky(4), Sleeps()
    result = await retrying(call, first_delay_s=1.0, max_delay_s=4.0, sleep=sleep, draw=lambda: 1.0)
    assert result == "done"
    assert sleep.seconds == [1.0, 2.0, 4.0, 4.0]


async def test_the_last_failure_is_raised_when_the_attempts_are_used_up() -> None:
    call, sleep = Flaky(3), Sleeps()
    with pytest.raises(Transient):
        await retrying(call, max_attempts=3, sleep=sleep)
    assert (call.num_calls, len(sleep.seconds)) == (3, 2)


async def test_a_refusal_is_final() -> None:
    call = Flaky(1, Refused("not_found", "gone"))
    with pytest.raises(Refused):
        await retrying(call, sleep=Sleeps())
    assert call.num_calls == 1


async def test_each_retry_is_reported() -> None:
    reports: list[tuple[str, float]] = []
    await retrying(
        Flaky(1),
        first_delay_s=2.0,
        sleep=Sleeps(),
        draw=lambda: 0.0,
        on_retry=lambda error, pause_s: reports.append((str(error), pause_s)),
    )
    assert reports == [("away", 1.0)]


@given(attempt=st.integers(0, 10**6), draw=st.floats(0, 1, exclude_max=True))
def test_a_pause_lies_between_half_and_all_of_its_bound(attempt: int, draw: float) -> None:
    pause_s = delay_s(attempt, first_delay_s=0.1, max_delay_s=10.0, draw=draw)
    longest_s = min(10.0, 0.1 * 2.0 ** min(attempt, 32))
    assert longest_s / 2 <= pause_s <= longest_s
