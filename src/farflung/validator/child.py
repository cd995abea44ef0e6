"""The judging process: where strangers' files are parsed and an environment's code runs, under limits.

    python -m farflung.validator.child READ_FD WRITE_FD PROGRESS_FD

Every step has an alarm that the system itself carries out, so a step that hangs ends the process, also when nobody is
left who could end it. What an environment prints goes to the log. This is no sandbox: it guards against mistakes and
greed, not against code that wants out.
"""

import os
import resource
import signal
import sys
import time

import numpy as np

from farflung.errors import FarflungError, OurFault, UserError
from farflung.validation.case import Case
from farflung.validation.judge import Examine
from farflung.validator.evidence import Judge
from farflung.validator.messages import Ask, Computed, Setup, Told, claimed_row, receive, send
from farflung.validator.progress import Progress
from farflung.wire.proof import RolloutFigures
from farflung.wire.rollout import Rollout, StopReason
from farflung.wire.rollout_file import read_rollouts, write_rollouts

MAX_ASK_BYTES = 1 << 40
"""The validator is trusted; it has bounded what it passes on."""


class Steps:
    """Notes each step and gives it its time."""

    def __init__(self, progress: Progress, step_s: float) -> None:
        self._progress = progress
        self._step_s = step_s

    def __call__(self, step: int) -> None:
        self._progress.begin(step)
        signal.setitimer(signal.ITIMER_REAL, self._step_s)

    def rest(self) -> None:
        """No step in progress."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def main() -> None:
    read_fd, write_fd, progress_fd = map(int, sys.argv[1:])
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the validator, which ends this process
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        setup = receive(read_fd, Setup, MAX_ASK_BYTES)
        _limit(setup.max_bytes)
        steps = Steps(Progress(progress_fd), setup.step_s)
        judge = _start(setup, steps, read_fd, write_fd)
        while judge is not None:
            ask = receive(read_fd, Ask, MAX_ASK_BYTES)
            send(write_fd, _answer(judge, ask, steps))
    except (EOFError, BrokenPipeError):
        return  # the validator is gone


def _limit(max_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = max_bytes if hard == resource.RLIM_INFINITY else min(max_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _start(setup: Setup, steps: Steps, read_fd: int, write_fd: int) -> Judge | None:
    """Load the environment; None when that did not work, which was told."""
    judge = None
    try:
        judge = Judge.from_policy(setup.files, setup.pool, setup.validator, steps, _asking(read_fd, write_fd, steps))
        _warm_up()
        told = Told(cpu_s=time.process_time())
    except UserError as error:
        told = Told(user_error=str(error))
    except FarflungError as error:
        told = Told(own_fault=str(error))
    except Exception as error:  # noqa: BLE001 - an environment is other people's code
        told = Told(own_fault=f"the environment cannot be loaded: {type(error).__name__}: {error}")
    send(write_fd, told)
    return judge


def _warm_up() -> None:
    """Libraries load parts of themselves at first use, for a second: that is no step's time."""
    tokens = np.zeros(1, np.int32)
    row = Rollout(
        env="none",
        task_id="none",
        group=0,
        sample=0,
        prompt_tokens=tokens,
        completion_tokens=tokens,
        logprobs=np.zeros(1, np.float32),
        stop_reason=StopReason.EOS,
        policy_version=0,
    )
    read_rollouts(write_rollouts([row], ""), pool_digest="")


def _asking(read_fd: int, write_fd: int, steps: Steps) -> Examine:
    """The validator has the policy; here are only the claims."""

    def examine(case: Case) -> tuple[RolloutFigures, ...]:
        steps.rest()
        rows = zip(case.rollouts, case.transcripts, strict=True)
        send(write_fd, Told(claims=tuple(claimed_row(rollout, found.spans) for rollout, found in rows)))
        computed = receive(read_fd, Computed, MAX_ASK_BYTES)
        if computed.fault:
            raise OurFault(computed.fault)
        return computed.figures

    return examine


def _answer(judge: Judge, ask: Ask, steps: Steps) -> Told:
    judgement, fault = None, ""
    try:
        if ask.is_control:
            judge.control(ask.assignment.lease)
        else:
            judgement = judge.judge(ask.assignment, ask.data, ask.current_version, ask.now_ms, ask.given_up)
    except OurFault as error:
        fault = str(error)
    finally:
        steps.rest()
    return Told(
        judgement=judgement,
        own_fault=fault,
        first_fault=judge.first_fault,
        cpu_s=time.process_time(),
    )


if __name__ == "__main__":
    main()
