"""The loop that starts, watches and stops the roles of one machine, as `policy` says."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from farflung.supervisor.last_words import how_it_ended
from farflung.supervisor.leash import Leash
from farflung.supervisor.policy import EndRun, GiveUp, Left, OutcomeKind, Restart, RestartPolicy, Roster
from farflung.supervisor.process import RoleProcess, RoleSpec
from farflung.wire.node import Role

POLL_S = 0.1
TROUBLE_POLL_S = 1.0

STOP_ORDER: tuple[frozenset[Role], ...] = (
    frozenset({Role.WORKER, Role.VALIDATOR}),
    frozenset({Role.RELAY, Role.TRAINER}),
    frozenset({Role.COORDINATOR}),
)
"""Those who depend on others first; the trainer checkpoints while the coordinator is still there."""

PLURALS = {
    Role.WORKER: "workers",
    Role.VALIDATOR: "validators",
    Role.RELAY: "relays",
    Role.TRAINER: "the trainer",
    Role.COORDINATOR: "the coordinator",
}

STOPPING = "stopping: "
"""How the line begins that tells of it."""


def stopping(roles: Iterable[Role]) -> str:
    """In which order those of a run are stopped.

    >>> stopping([Role.COORDINATOR, Role.TRAINER, Role.WORKER, Role.VALIDATOR])
    'stopping: workers and validators, then the trainer, then the coordinator; once more kills at once'
    >>> stopping([Role.TRAINER])
    'stopping: the trainer, when its step is made; once more kills at once'
    """
    there = set(roles)
    if there == {Role.TRAINER}:
        return f"{STOPPING}the trainer, when its step is made; once more kills at once"
    words = [" and ".join(PLURALS[role] for role in PLURALS if role in group & there) for group in STOP_ORDER]
    return f"{STOPPING}{', then '.join(filter(None, words))}; once more kills at once"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a run ended."""

    kind: OutcomeKind
    culprit: str | None = None
    """Process that ended it."""
    sentence: str = ""
    """How and why, for a person."""


@dataclass(slots=True)
class StopRequest:
    """Set by signal handlers: once = stop in order, twice = kill at once."""

    level: int = 0

    def ask(self) -> None:
        self.level += 1


class Supervisor:
    """Runs the given roles until the run is finished, stopped or hopeless.

    Args:
        specs: in the order in which they are started.
        policy: when a crashed role comes back.
        stop_grace_s: from the request to stop until a role is killed.
        report: takes one line for each event that a person wants to see.
        trouble: asked every second for a reason to end the run that only a person can remove; a sentence, or None.
    """

    def __init__(
        self,
        specs: Sequence[RoleSpec],
        policy: RestartPolicy,
        *,
        stop_grace_s: float,
        report: Callable[[str], None],
        trouble: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._roster = Roster({spec.name: spec.role for spec in specs}, policy)
        self._stop_grace_s = stop_grace_s
        self._report = report
        self._trouble = trouble
        self._running: dict[str, RoleProcess] = {}

    def run(self, stop: StopRequest, *, before_last: Callable[[], None] = lambda: None) -> Outcome:
        """Block until the end; no process that was started is left, whatever happens here.

        Args:
            stop: looked at between polls.
            before_last: called once at the run's end, when nobody but the coordinator is left: what it tells is final.
        """
        leash = Leash()
        try:
            outcome = self._watch(leash, stop)
            if outcome.kind == "stopped":
                self._report(stopping(spec.role for spec in self._specs.values()))
            self._stop_in_order(stop, before_last)
            return outcome
        finally:
            self._kill_all()
            leash.close()

    def pids(self) -> dict[str, int]:
        """Process name -> id of those that run."""
        return {name: process.pid for name, process in self._running.items()}

    def _watch(self, leash: Leash, stop: StopRequest) -> Outcome:
        next_look_s = 0.0
        while not stop.level:
            if time.monotonic() >= next_look_s:
                next_look_s = time.monotonic() + TROUBLE_POLL_S
                if sentence := self._trouble():
                    return Outcome(kind="user_error", sentence=sentence)
            for name in self._roster.due(time.monotonic()):
                self._running[name] = RoleProcess(self._specs[name], leash)
                self._roster.started(name, time.monotonic())
            for process, code in self._reap():
                decision = self._roster.exited(process.spec.name, code, time.monotonic())
                sentence = _sentence(process, code)
                if isinstance(decision, EndRun):
                    return Outcome(kind=decision.kind, culprit=process.spec.name, sentence=sentence)
                if not isinstance(decision, Left):
                    self._report(f"{sentence}; {_what_follows(decision)}")
            time.sleep(POLL_S)
        return Outcome(kind="stopped")

    def _reap(self) -> list[tuple[RoleProcess, int]]:
        """Processes that have ended since the last call, with their codes."""
        ended = []
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is not None:
                del self._running[name]
                ended.append((process, code))
        return ended

    def _stop_in_order(self, stop: StopRequest, before_last: Callable[[], None]) -> None:
        first_level = stop.level
        *dependents, last = STOP_ORDER
        for roles in dependents:
            self._stop_roles(roles, stop, first_level)
        before_last()
        self._stop_roles(last, stop, first_level)

    def _stop_roles(self, roles: frozenset[Role], stop: StopRequest, first_level: int) -> None:
        """Ask; kill those that are still there after the grace, or when the stop was asked for once more."""
        for process in self._playing(roles):
            process.ask_to_stop()
        deadline_s = time.monotonic() + self._stop_grace_s
        while self._playing(roles) and time.monotonic() < deadline_s and stop.level <= first_level:
            self._reap()
            time.sleep(POLL_S / 2)
        for process in self._playing(roles):
            self._report(f"{process.spec.name} did not stop within {self._stop_grace_s:g} s and is killed")
            process.kill()
        self._reap()

    def _playing(self, roles: frozenset[Role]) -> list[RoleProcess]:
        return [process for process in self._running.values() if process.spec.role in roles]

    def _kill_all(self) -> None:
        for process in self._running.values():
            process.kill()
        self._running.clear()


def _sentence(process: RoleProcess, code: int) -> str:
    words = process.last_words()
    return f"{process.spec.name} {how_it_ended(code)}{': ' + words if words else ''}"


def _what_follows(decision: Restart | GiveUp) -> str:
    if isinstance(decision, GiveUp):
        return f"given up after {decision.num_crashes} crashes in a row, the others go on"
    return f"starting again in {decision.after_s:g} s"
