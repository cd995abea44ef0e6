"""Limits of the children that give second opinions on mathematics."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MathPoolConfig:
    """Bounds for each child, each question and the pool."""

    max_children: int = 2
    """Children at a time; each takes about 80 MiB and, while it answers, a core."""
    memory_bytes: int = 768 * MIB
    """Address space of a child."""
    cpu_s: float = 2.0
    """CPU time for one question; the kernel ends the child that takes longer. An ordinary question takes 0.02 s."""
    wall_s: float = 60.0
    """Time for one question on the clock; far above `cpu_s`, since only a machine in trouble reaches it."""
    start_wall_s: float = 60.0
    """Time until a new child is ready, normally a second."""
    wait_wall_s: float = 600.0
    """Time to wait for a free child."""
    max_questions: int = 2_000
    """A child is replaced after so many: what a library caches is bounded."""
    max_attempts: int = 3
    """Children that are tried where the fault is not the question's."""
    max_text_chars: int = 2_000
    """Longest gold or answer that is asked about."""
    max_known: int = 4_096
    """Latest verdicts that are kept: a group often gives one answer many times."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
