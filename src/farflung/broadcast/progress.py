"""Lines for people who wait for bytes: `120 of 269 MB, 45 %, 35.2 MB/s, 4 s left`. Pure; the caller brings time."""

FIRST_S = 3.0
"""Shorter waits are not worth a line."""
EVERY_S = 5.0


class Progress:
    """Of one fetch."""

    def __init__(self, num_bytes: int, now_s: float) -> None:
        self._num_bytes = num_bytes
        self._done = 0
        self._started_s = now_s
        self._next_s = now_s + FIRST_S

    def add(self, num_bytes: int, now_s: float) -> str | None:
        """More has come; a line when it is time for one."""
        self._done += num_bytes
        if now_s < self._next_s or self._done >= self._num_bytes:
            return None
        self._next_s = now_s + EVERY_S
        rate = self._done / (now_s - self._started_s)
        left_s = (self._num_bytes - self._done) / rate
        return (
            f"{self._done / 1e6:.0f} of {self._num_bytes / 1e6:.0f} MB, {100 * self._done // self._num_bytes} %, "
            f"{rate / 1e6:.1f} MB/s, {left_s:.0f} s left"
        )
