"""How much one program may use. Imports the standard library only: it also travels into the sandbox."""

from dataclasses import asdict, dataclass, fields
from typing import Any

MIB = 1 << 20

_LEAST = {"memory_bytes": 64 * MIB, "max_open_files": 16, "disk_bytes": 1 * MIB}


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds for one sandbox. Raises `ValueError` with the value and the rule."""

    test_cpu_s: float = 10.0
    """CPU seconds of one process of the program, for one test."""
    test_wall_s: float = 30.0
    """Seconds until an answer to one test; wider than the CPU limit, since machines are busy."""
    total_wall_s: float = 120.0
    """Seconds for all tests of one program together."""
    memory_bytes: int = 512 * MIB
    """Address space of each process, and memory of all processes where a control group can be made."""
    output_bytes: int = 1 * MIB
    """Standard output of one test; the same again for standard error, of which the end is kept."""
    message_bytes: int = 4 * MIB
    """One value that a function takes or returns, encoded."""
    max_processes: int = 32
    """Processes and threads at a time."""
    max_open_files: int = 128
    """In each process."""
    file_bytes: int = 16 * MIB
    """One file."""
    disk_bytes: int = 64 * MIB
    """All files together; they lie in memory."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, least = getattr(self, field.name), _LEAST.get(field.name, 0)
            if not value > 0 or value < least:
                raise ValueError(
                    f"limit {field.name} is {value}; it must be {f'at least {least}' if least else 'positive'}"
                )
        if not self.test_cpu_s <= self.test_wall_s <= self.total_wall_s:
            raise ValueError(
                f"limits test_cpu_s, test_wall_s, total_wall_s are {self.test_cpu_s:g}, {self.test_wall_s:g}, "
                f"{self.total_wall_s:g}; none may be smaller than the one before"
            )

    def as_dict(self) -> dict[str, Any]:
        """For the way into a sandbox; `Limits(**d)` is the way back."""
        return asdict(self)
