"""A judging process from its validator's side: started when needed, asked again without the culprit when it ends.

A step of it that takes too long or ends the process is either the grading of one completion, which then has no grade,
or our own fault. This module does not know the network.
"""

import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence

from farflung.api.tokens import VARIABLE
from farflung.errors import FarflungError, OurFault, UserError
from farflung.validator.messages import MAX_TOLD_BYTES, Ask, ClaimedRow, Computed, Setup, Told, receive, send
from farflung.validator.progress import SIZE_BYTES, STEP_NAMES, Progress
from farflung.wire.pool import PoolSpec
from farflung.wire.proof import RolloutFigures
from farflung.wire.submission import Assignment
from farflung.wire.verdict import Judgement

logger = logging.getLogger(__name__)

TIMEOUT, DIED = "timeout", "died"
"""What went wrong with a completion whose grading ended the process."""
MAX_LOST_PER_TASK = 2
"""Completions of one task that may end the process; then the others of the task are not graded either."""
MAX_LOST_PER_SUBMISSION = 6
"""The same for all tasks of a submission, so that it is judged in bounded time."""
START_S = 120.0
"""For a process to load its libraries and the environment."""
OVERTIME = 3.0
"""Times its limit that a step may take before the process is killed from here: it should have ended itself."""


Compute = Callable[[Sequence[ClaimedRow]], Sequence[RolloutFigures]]


class _Lost(Exception):
    """The process is gone."""

    def __init__(self, kind: str, step: int) -> None:
        super().__init__(kind, step)
        self.kind = kind
        self.step = step


class JudgingProcess:
    """Judges like `evidence.Judge`. Blocking: call it from a thread, one call at a time. `close` may come from another.

    Args:
        files: the small files of any version.
        step_s: longest that one step may take.
        max_bytes: of the process's memory.
    """

    def __init__(
        self, files: Mapping[str, bytes], pool: PoolSpec, validator: str, *, step_s: float, max_bytes: int
    ) -> None:
        self._setup = Setup(pool=pool, files=dict(files), validator=validator, step_s=step_s, max_bytes=max_bytes)
        self._group_size = pool.rollouts_per_group
        self._environment = pool.environment.name
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: tuple[int, int] = (-1, -1)
        self._progress_fd, path = tempfile.mkstemp(prefix="farflung-progress-")
        os.unlink(path)
        os.truncate(self._progress_fd, SIZE_BYTES)
        self._progress = Progress(self._progress_fd)
        self._calling = threading.Lock()
        """Held by the thread that talks to the process."""
        self._cpu_s_before, self._cpu_s = 0.0, 0.0
        self._is_closed = False
        self._told_of: set[str] = set()

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all processes that were started so far, as last told."""
        return self._cpu_s_before + self._cpu_s

    def start(self) -> None:
        """Start the process now, so that trouble with the environment is seen at once.

        Raises:
            UserError: a person has to change something, such as to install the environment.
            OurFault: it cannot be started.
        """
        with self._calling:
            self._start()

    def judge(
        self,
        assignment: Assignment,
        data: bytes | None,
        current_version: int,
        now_ms: int,
        compute: Compute | None = None,
    ) -> Judgement:
        """The verdict on one submission; completions that cannot be graded have no reward.

        Args:
            compute: needed in pools with proofs: claimed rows -> what they look like beside the policy.

        Raises:
            OurFault: it could not be judged.
        """
        given_up: dict[int, str] = {}
        lost_in: dict[int, int] = {}
        while True:
            ask = Ask(
                assignment=assignment,
                data=data,
                current_version=current_version,
                now_ms=now_ms,
                given_up=given_up,
            )
            try:
                return self._judgement(self._exchange(ask, compute), assignment)
            except _Lost as lost:
                if lost.step < 0:
                    raise OurFault(f"{STEP_NAMES[lost.step]} ended the judging process: {lost.kind}") from None
                group = lost.step // self._group_size
                lost_in[group] = lost_in.get(group, 0) + 1
                self._say(lost.kind, f"grading completion {lost.step} of slot {assignment.submission.slot}")
                given_up |= dict.fromkeys(self._hopeless(lost.step, lost_in, assignment), lost.kind)

    def control(self, assignment: Assignment) -> str:
        """What goes wrong when an empty completion of each task of this lease is graded; empty if nothing does.

        Tells a broken environment from completions that break it.
        """
        ask = Ask(assignment=assignment, data=None, current_version=0, now_ms=0, is_control=True)
        try:
            return self._exchange(ask).own_fault
        except _Lost as lost:
            return f"grading an empty completion ended the judging process: {lost.kind}"

    def close(self) -> None:
        """End the process; a call in progress raises `OurFault`."""
        self._is_closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._calling:
            if self._process is not None:
                self._forget()
            if self._progress_fd >= 0:
                self._progress.close()
                os.close(self._progress_fd)
                self._progress_fd = -1

    def _hopeless(self, position: int, lost_in: Mapping[int, int], assignment: Assignment) -> range:
        """Positions of rollouts that are not worth another try after this one was lost."""
        if sum(lost_in.values()) >= MAX_LOST_PER_SUBMISSION:
            return range(position, assignment.submission.num_rollouts)
        group = position // self._group_size
        if lost_in[group] >= MAX_LOST_PER_TASK:
            return range(position, (group + 1) * self._group_size)
        return range(position, position + 1)

    def _judgement(self, told: Told, assignment: Assignment) -> Judgement:
        if told.first_fault:
            self._say(told.first_fault.partition(":")[0], told.first_fault)
        if told.judgement is None:
            raise OurFault(told.own_fault or "the judging process gave no answer")
        verdict = told.judgement.verdict
        found = (verdict.submission_digest, verdict.validator)
        if found != (assignment.submission.digest(), self._setup.validator):
            raise OurFault(f"the judging process answered for {found}")
        return told.judgement

    def _say(self, kind: str, detail: str) -> None:
        """Once for each kind of trouble: the count goes with the verdicts."""
        if kind not in self._told_of and len(self._told_of) < 64:
            self._told_of.add(kind)
            logger.warning(
                "environment %s cannot grade everything: %s: %s (said once, counted in the status)",
                self._environment,
                kind,
                detail,
            )

    def _exchange(self, ask: Ask, compute: Compute | None = None) -> Told:
        """Raises `_Lost` when the process does not survive the call."""
        with self._calling:
            self._start()
            try:
                send(self._pipes[1], ask)
                told = self._receive(self._setup.step_s * OVERTIME)
                while told.claims is not None:
                    send(self._pipes[1], _computed(told.claims, compute))
                    told = self._receive(self._setup.step_s * OVERTIME)
                return told
            except (EOFError, BrokenPipeError):
                code = self._forget()
                if self._is_closed:
                    raise OurFault("the validator stops") from None
                raise _Lost(TIMEOUT if code == -signal.SIGALRM else DIED, self._progress.read()[1]) from None

    def _receive(self, longest_step_s: float) -> Told:
        """The answer; kills a process that neither answers nor begins another step."""
        ticks, _ = self._progress.read()
        while not select.select([self._pipes[0]], [], [], longest_step_s)[0]:
            before, (ticks, _) = ticks, self._progress.read()
            if ticks == before:
                assert self._process is not None
                logger.error("the judging process outlived its limit of %.1f s and is killed", self._setup.step_s)
                self._process.kill()
        told = receive(self._pipes[0], Told, MAX_TOLD_BYTES)
        self._cpu_s = told.cpu_s
        return told

    def _start(self) -> None:
        """Unless it runs."""
        if self._process is not None:
            return
        if self._is_closed:
            raise OurFault("the validator stops")
        ask_read, ask_write = os.pipe()
        told_read, told_write = os.pipe()
        fds = (ask_read, told_write, self._progress_fd)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "farflung.validator.child", *map(str, fds)],
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                env=_environment(),
            )
        finally:
            os.close(ask_read)
            os.close(told_write)
        self._pipes = (told_read, ask_write)
        try:
            send(ask_write, self._setup)
            told = self._receive(START_S)
        except (EOFError, BrokenPipeError):
            raise OurFault(f"the judging process ended with code {self._forget()} at its start, see the log") from None
        if told.user_error or told.own_fault:
            self._forget()
            raise UserError(told.user_error) if told.user_error else OurFault(told.own_fault)

    def _forget(self) -> int:
        """Be rid of a process that ends or has ended; its exit code."""
        assert self._process is not None
        for fd in self._pipes:
            os.close(fd)
        try:
            code = self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._cpu_s_before, self._cpu_s = self.cpu_s, 0.0
        self._process = None
        return code


def _computed(claims: Sequence[ClaimedRow], compute: Compute | None) -> Computed:
    if compute is None:
        return Computed(fault="this validator has no policy to compare proofs with")
    try:
        return Computed(figures=tuple(compute(claims)))
    except FarflungError as error:
        return Computed(fault=str(error))


def _environment() -> dict[str, str]:
    """The process finds what this one finds, and does not learn the validator's token."""
    kept = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
