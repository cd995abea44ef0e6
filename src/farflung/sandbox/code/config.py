"""Settings of a pool of sandboxes for programs. Frozen and checked; knows no files and no processes."""

from dataclasses import dataclass, field
from typing import Literal

from farflung.errors import UserError
from farflung.sandbox.isolation.limits import Limits

Backend = Literal["auto", "bubblewrap", "namespaces", "none"]
BACKENDS: tuple[Backend, ...] = ("auto", "bubblewrap", "namespaces", "none")


@dataclass(frozen=True, kw_only=True, slots=True)
class CodePoolConfig:
    """Raises `UserError` with the value, the rule and the fix."""

    backend: Backend = "auto"
    """`auto`: bubblewrap, else own namespaces, else a refusal. `none` shuts nothing in: for a user's own code only."""
    limits: Limits = field(default_factory=Limits)
    num_warm: int = 2
    """Interpreters that wait inside their sandboxes."""
    attempts: int = 3
    """How often a program is tried when a sandbox, not the program, fails."""
    start_s: float = 20.0
    """Longest wait for a sandbox to start."""
    packages: tuple[str, ...] = ()
    """Further folders that programs may import from, read-only. Their content is visible to every program."""
    mounts: tuple[tuple[str, str], ...] = ()
    """The same at other paths: (path outside, path inside)."""
    first_user: int = 61000
    """For a pool that runs as root: each sandbox gets a user of its own from this one on; nobody else may use them."""
    num_users: int = 4000
    max_kept_bytes: int = 1 << 14
    """How much of an output a report keeps."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise UserError(f"backend is {self.backend!r}; it must be one of {', '.join(BACKENDS)}")
        for name, least in (("num_warm", 0), ("attempts", 1), ("first_user", 1000), ("num_users", 1)):
            if getattr(self, name) < least:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least {least}")
