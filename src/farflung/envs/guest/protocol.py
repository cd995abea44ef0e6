"""What a host asks an environment in a child, and what it may answer: JSON values over framed messages.

    host   {"id": 7, "method": "grade", "args": [task, "42"]}
    child  {"id": 7, "value": {"reward": 1.0, ...}}    or    {"id": 7, "kind": "ValueError", "error": "..."}

An answer carries the id of its question; any other message is a breach. Everything that comes back is converted to a
type with limits before anybody looks at it. This module does not know processes.
"""

from typing import Any, Literal

import msgspec

from farflung.config.reference import Setting
from farflung.envs.base import Grade
from farflung.wire.invariants import require_counts, require_names
from farflung.wire.pool import MAX_STRATA, GraderSpec, Stratum

MAX_MESSAGE_BYTES = 8 << 20
"""One question or answer, encoded."""
MAX_ALPHABET_CHARS = 1 << 16
MAX_TARGET_LENGTHS = 1024
MAX_ARGUMENTS = 64
MAX_COMPONENTS = 64
MAX_TURN_REWARDS = 4096
MAX_ERROR_CHARS = 500

ErrorKind = Literal["", "IndexError", "ValueError", "UserError", "other"]


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: int
    method: str
    args: list[Any]


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: int
    value: msgspec.Raw = msgspec.Raw(b"null")
    kind: ErrorKind = ""
    """Empty = there is a value."""
    error: str = ""


class Description(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an environment says of itself once; answer to `load`."""

    name: str
    num_tasks: int
    num_heldout_tasks: int
    target_lengths: tuple[int, ...]
    alphabet: str | None
    strata: tuple[Stratum, ...]
    graders: tuple[GraderSpec, ...]
    is_reproducible: bool
    arguments: tuple[Setting, ...]
    num_agents: int = 0
    """0 = not `Episodic`."""
    max_turns: int = 0
    max_turn_tokens: int = 0

    def __post_init__(self) -> None:
        require_names(name=self.name)
        require_counts(num_tasks=self.num_tasks, num_heldout_tasks=self.num_heldout_tasks, num_agents=self.num_agents)
        require_counts(max_turns=self.max_turns, max_turn_tokens=self.max_turn_tokens)
        require_counts(target_lengths=min(self.target_lengths, default=0))
        for what, count, most in (
            ("target lengths", len(self.target_lengths), MAX_TARGET_LENGTHS),
            ("characters", len(self.alphabet or ""), MAX_ALPHABET_CHARS),
            ("parts", len(self.strata), MAX_STRATA),
            ("graders", len(self.graders), MAX_STRATA),
            ("arguments", len(self.arguments), MAX_ARGUMENTS),
        ):
            if count > most:
                raise ValueError(f"{count} {what}: at most {most}")


def check_grade(grade: Grade) -> None:
    """Raises `ValueError` for more components, or other names of them, than may be logged."""
    if len(grade.components) > MAX_COMPONENTS:
        raise ValueError(f"{len(grade.components)} components of a reward: at most {MAX_COMPONENTS}")
    require_names(**{f"component {number}": name for number, name in enumerate(grade.components)})


def plain_text(text: str) -> str:
    """What a child said, fit for a log and a terminal: bounded, and without control characters."""
    return "".join(char if char.isprintable() else "?" for char in text[:MAX_ERROR_CHARS])
