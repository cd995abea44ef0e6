"""What this machine can enforce: which walls there are, and whether every attack of the corpus stops at them."""

import os
import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from farflung.sandbox.code.attacks.attack import LIMITS, Attack, Bait
from farflung.sandbox.code.attacks.corpus import CORPUS
from farflung.sandbox.code.config import Backend, CodePoolConfig
from farflung.sandbox.code.machine import Machine
from farflung.sandbox.code.pool import CodePool

_WORKERS = 4


@dataclass(frozen=True, slots=True)
class Wall:
    """One means of enforcement."""

    name: str
    is_there: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Trial:
    """One attack, tried."""

    attack: str
    threat: str
    held: bool
    expected_here: bool
    """False: this machine lacks what would stop it, and the report says so."""
    detail: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All of it."""

    backend: str
    walls: tuple[Wall, ...]
    trials: tuple[Trial, ...]

    @property
    def is_sound(self) -> bool:
        """Whether every attack was stopped, apart from those that this machine cannot stop."""
        return all(trial.held for trial in self.trials if trial.expected_here)


def examine(backend: Backend = "auto") -> Iterator[Diagnosis | Trial]:
    """Trials as they happen, the diagnosis last. Raises `UserError` where programs cannot be shut in."""
    machine = Machine.ask()
    config = CodePoolConfig(backend=backend, limits=LIMITS, num_warm=1, attempts=2)
    with CodePool(config, machine) as pool, bait() as lure:
        trials = []
        with ThreadPoolExecutor(_WORKERS) as workers:  # several wait for a time limit
            for trial in workers.map(lambda attack: try_attack(pool, attack, lure), CORPUS):
                trials.append(trial)
                yield trial
        yield Diagnosis(pool.backend, walls(machine, pool.backend), tuple(trials))


def try_attack(pool: CodePool, attack: Attack, lure: Bait) -> Trial:
    """Run one attack."""
    report = pool.run(attack.source(lure), attack.tests)
    decision = report.decision
    expected = not attack.needs_cgroup or pool.machine.cgroups is not None
    return Trial(attack.name, attack.threat, attack.held(report), expected, f"{decision.rule}: {decision.detail}"[:200])


@contextmanager
def bait() -> Iterator[Bait]:
    """A listener, a secret and a process outside that attacks look for."""
    with socket.create_server(("127.0.0.1", 0)) as listener, tempfile.NamedTemporaryFile("w", prefix="secret-") as file:
        file.write("a secret of the host")
        file.flush()
        yield Bait(listener.getsockname()[1], file.name, os.getpid())


def walls(machine: Machine, backend: str) -> tuple[Wall, ...]:
    """What a program on this machine stands behind."""
    shut_in = backend != "none"
    groups = machine.cgroups
    return (
        Wall("namespaces", shut_in, "files, processes, network, users of its own" if shut_in else "none: no walls"),
        Wall(
            "bubblewrap", machine.bubblewrap is not None, machine.bubblewrap or "not installed; own namespaces are used"
        ),
        Wall("system call filter", shut_in, "a list of allowed calls" if shut_in else "not loaded"),
        Wall(
            "landlock",
            shut_in and machine.landlock > 0,
            f"version {machine.landlock}" if machine.landlock else "not in this kernel",
        ),
        Wall(
            "user of its own",
            shut_in and machine.is_root,
            "one of a range for each sandbox"
            if machine.is_root
            else "the pool does not run as root: programs have its user's rights outside of their walls",
        ),
        Wall(
            "control groups",
            groups is not None,
            f"version {groups.version}: memory and processes together"
            if groups
            else "not writable: memory is limited for each process only",
        ),
        Wall("limits of each process", True, "CPU, address space, files, processes, descriptors"),
    )
