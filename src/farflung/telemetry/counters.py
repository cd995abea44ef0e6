"""Every drop has a reason and is counted."""

from collections import Counter
from collections.abc import Mapping


class DropCounter:
    """Reason -> count since start. Nothing is dropped without a call of `add`."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        """`counts`: where an earlier life of this process stopped."""
        self._counts: Counter[str] = Counter(counts)

    def add(self, reason: str, count: int = 1) -> None:
        """Raises `ValueError` for an empty reason or a negative count."""
        if not reason or count < 0:
            raise ValueError(f"a drop needs a reason and a count of at least 0, got {reason!r} and {count}")
        if count:
            self._counts[reason] += count

    @property
    def counts(self) -> dict[str, int]:
        """Most frequent first; ties by name."""
        return dict(sorted(self._counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def total(self) -> int:
        return self._counts.total()
