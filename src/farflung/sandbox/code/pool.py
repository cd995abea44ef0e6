"""Programs in, reports out; a few sandboxes always wait, each for one program.

    with CodePool(CodePoolConfig()) as pool:
        report = pool.run("print(input()[::-1])", ScriptTests(tests=[ScriptTest("ab", "ba")]))
        report.decision.verdict  # 1.0

A sandbox that fails is replaced and the program tried again; if that goes on, the verdict is None, never 0.
"""

import atexit
import logging
import os
import threading
from collections import deque
from types import TracebackType
from typing import Self
from weakref import WeakSet

from farflung.errors import Transient, UserError
from farflung.rewards.decision import Decision
from farflung.sandbox.code.config import Backend, CodePoolConfig
from farflung.sandbox.code.keeper_link import KeeperLink
from farflung.sandbox.code.machine import REFUSAL, Machine
from farflung.sandbox.code.report import CodeReport, TestOutcome, decide
from farflung.sandbox.code.run_calls import run_call_tests
from farflung.sandbox.code.run_pytest import run_pytest_tests
from farflung.sandbox.code.run_script import run_script, run_script_tests
from farflung.sandbox.code.sandbox import Ending, Sandbox
from farflung.sandbox.code.tests import CallTests, CodeTests, ScriptTests, TestsUnreadable

logger = logging.getLogger(__name__)

_POOLS: "WeakSet[CodePool]" = WeakSet()


class CodePool:
    """Thread-safe: several threads may run programs at once.

    Raises:
        UserError: programs cannot be shut in on this machine, and why.
    """

    def __init__(self, config: CodePoolConfig | None = None, machine: Machine | None = None) -> None:
        self.config = CodePoolConfig() if config is None else config
        self.machine = Machine.ask() if machine is None else machine
        self._lock = threading.Lock()
        self._warm: deque[Sandbox] = deque()
        self._closed = False
        self._keeper: KeeperLink | None = self._first_that_works()
        self.backend: Backend = self._keeper.kind
        """What shuts programs in."""
        self._fill()
        _POOLS.add(self)
        atexit.register(self._close_at_exit, os.getpid())

    def run(self, program: str, tests: CodeTests, *, stop_early: bool = False) -> CodeReport:
        """Run all tests of one program. Never raises on any program.

        Args:
            stop_early: no further test of a script or a function once one has failed.
        """
        if len(program) > self.config.limits.message_bytes // 8:  # a sign may take six bytes, and more when escaped
            decision = Decision(0.0, "program_too_long", f"the program has {len(program)} characters")
            return CodeReport(outcomes=(), decision=decision, backend=self.backend)
        fault = ""
        for attempt in range(1, self.config.attempts + 1):
            try:
                outcomes, num_expected = self._run_once(program, tests, stop_early=stop_early)
            except TestsUnreadable as error:
                return self._without_verdict("tests_unreadable", str(error), attempt)
            except Transient as error:
                fault = str(error)
                logger.warning("a sandbox failed, attempt %d of %d: %s", attempt, self.config.attempts, fault)
                self._revive()
                continue
            decision = decide(outcomes, num_expected)
            return CodeReport(outcomes=tuple(outcomes), decision=decision, backend=self.backend, attempts=attempt)
        return self._without_verdict("sandbox_failed", fault, self.config.attempts)

    def output_of(self, program: str, stdin: str = "") -> Ending:
        """How one whole program ended, with what it printed. Never raises on any program.

        Raises:
            Transient: sandboxes failed, not the program, as often as they are tried.
        """
        for _ in range(self.config.attempts - 1):
            try:
                return run_script(program, stdin, self.take, self.config.limits)
            except Transient as error:
                logger.warning("a sandbox failed: %s", error)
                self._revive()
        return run_script(program, stdin, self.take, self.config.limits)

    def take(self) -> Sandbox:
        """A fresh sandbox that is ready; the caller ends it with `kill`. Raises `Transient`."""
        with self._lock:
            if self._closed:
                raise Transient("the pool is closed")
            sandbox = self._warm.popleft() if self._warm else None
        sandbox = self._start() if sandbox is None else sandbox
        try:
            self._fill()
            sandbox.wait_ready(self.config.start_s)
        except (Transient, TimeoutError) as error:
            sandbox.kill()
            raise Transient(f"a sandbox did not start: {error}") from error
        return sandbox

    def close(self) -> None:
        """Ends what waits. A program that is running is its caller's to end."""
        with self._lock:
            self._closed = True
            waiting = list(self._warm)
            self._warm.clear()
            keeper, self._keeper = self._keeper, None
        for sandbox in waiting:
            sandbox.kill()
        if keeper is not None:
            keeper.close()
        atexit.unregister(self._close_at_exit)

    def begin_after_fork(self) -> None:
        """In the forked process, before it has other threads: keeper and sandboxes are the parent's."""
        for sandbox in self._warm:
            sandbox.forget()
        if self._keeper is not None:
            self._keeper.forget()
        self._lock, self._warm, self._keeper = threading.Lock(), deque(), None

    def _close_at_exit(self, pid: int) -> None:
        if os.getpid() == pid:  # a fork that ends leaves its parent's pool alone
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run_once(self, program: str, tests: CodeTests, *, stop_early: bool) -> tuple[list[TestOutcome], int]:
        limits = self.config.limits
        if isinstance(tests, ScriptTests):
            return run_script_tests(program, tests, self.take, limits, stop_early=stop_early), len(tests.tests)
        if isinstance(tests, CallTests):
            return run_call_tests(program, tests, self.take, limits, stop_early=stop_early), len(tests.tests)
        return run_pytest_tests(program, tests, self.take, limits)

    def _without_verdict(self, rule: str, detail: str, attempts: int) -> CodeReport:
        decision = Decision(None, rule, detail)
        return CodeReport(outcomes=(), decision=decision, backend=self.backend, attempts=attempts)

    def _first_that_works(self) -> KeeperLink:
        """Tried with a real sandbox: nothing else tells whether a kernel or a container allows it."""
        reasons = []
        for kind in self.machine.candidates(self.config.backend):
            try:
                keeper = KeeperLink(kind, self.config, self.machine)
            except Transient as error:
                reasons.append(f"{kind}: {error}")
                continue
            try:
                sandbox = keeper.start_sandbox()
                sandbox.wait_ready(self.config.start_s)
            except (Transient, TimeoutError) as error:
                keeper.close()
                reasons.append(f"{kind}: {error}")
                continue
            sandbox.kill()
            return keeper
        raise UserError(REFUSAL.format(reasons="; ".join(reasons)))

    def _fill(self) -> None:
        """Start what is missing; does not wait for it."""
        while True:
            with self._lock:
                if self._closed or len(self._warm) >= self.config.num_warm:
                    return
                self._warm.append(self._link().start_sandbox())

    def _start(self) -> Sandbox:
        with self._lock:
            link = self._link()
        return link.start_sandbox()

    def _link(self) -> KeeperLink:
        """Under the lock: the keeper, which a fork and a failure leave without."""
        if self._closed:
            raise Transient("the pool is closed")
        if self._keeper is None:
            self._keeper = KeeperLink(self.backend, self.config, self.machine)
        return self._keeper

    def _revive(self) -> None:
        """After a failure: what waits may be as broken, and the keeper may be gone."""
        with self._lock:
            waiting = list(self._warm)
            self._warm.clear()
        for sandbox in waiting:
            sandbox.kill()
        with self._lock:
            if self._keeper is not None and not self._keeper.is_alive():
                self._keeper.close()
                self._keeper = None


def _begin_after_fork() -> None:
    for pool in list(_POOLS):
        pool.begin_after_fork()


os.register_at_fork(after_in_child=_begin_after_fork)
