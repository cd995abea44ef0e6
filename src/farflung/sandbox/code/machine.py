"""What this machine offers for shutting programs in; questions only, nothing is started."""

import os
import shutil
import sys
from dataclasses import dataclass

from farflung.errors import UserError
from farflung.sandbox.code.config import Backend
from farflung.sandbox.isolation.cgroup import CgroupParents, find_parents
from farflung.sandbox.isolation.landlock import landlock_version
from farflung.sandbox.isolation.syscalls import machine_index

UNSAFE_HINT = ", or use --unsafe-no-sandbox for code that you wrote yourself"
REFUSAL = (
    "programs cannot be shut in on this machine ({reasons}); install bubblewrap or allow user namespaces" + UNSAFE_HINT
)


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts that a pool starts from."""

    is_root: bool
    bubblewrap: str | None
    """Path of its program."""
    landlock: int
    """Version; 0 = none."""
    cgroups: CgroupParents | None

    @classmethod
    def ask(cls) -> "Machine":
        """Raises `UserError` where there is no Linux with a known table of system calls."""
        if sys.platform != "linux":
            raise UserError(REFUSAL.format(reasons=f"it runs {sys.platform}, not Linux"))
        try:
            machine_index()
        except OSError as error:
            raise UserError(REFUSAL.format(reasons=error.strerror)) from error
        return cls(os.geteuid() == 0, shutil.which("bwrap"), landlock_version(), find_parents())

    def candidates(self, backend: Backend) -> tuple[Backend, ...]:
        """Kinds of sandbox to try, best first. Raises `UserError` for bubblewrap that is wanted and missing."""
        if backend == "auto":
            return ("bubblewrap", "namespaces") if self.bubblewrap else ("namespaces",)
        if backend == "bubblewrap" and self.bubblewrap is None:
            raise UserError("backend is bubblewrap, and there is no bwrap on the PATH; install it or use auto")
        return (backend,)
