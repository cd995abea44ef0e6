"""Judging in a process of its own: whatever an environment or a file does there, the validator goes on and says it."""

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from farflung.api.tokens import VARIABLE
from farflung.envs.registry import load_environment
from farflung.errors import OurFault, UserError
from farflung.trainer.policy import Policy
from farflung.validator import judging_process
from farflung.validator.judging_process import JudgingProcess
from farflung.validator.messages import Told, receive
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import write_rollouts
from farflung.wire.submission import Assignment
from farflung.wire.verdict import Judgement, Outcome
from running_pool import submission_for
from tiny_pool import NUM_TASKS, description, pool_spec, sampled_groups, tiny_policy

STEP_S = 1.0


def rough_pool(name: str = "rough", **args: Any) -> PoolSpec:
    return pool_spec(environment=EnvironmentSpec(name=name, args=args, seed=0, num_tasks=NUM_TASKS))


@contextmanager
def judging(pool: PoolSpec, **changes: Any) -> Iterator[JudgingProcess]:
    settings = {"step_s": STEP_S, "max_bytes": 8 << 30} | changes
    process = JudgingProcess(description().policy_files, pool, "v", **settings)
    try:
        yield process
    finally:
        process.close()


def sampled(policy: Policy | None = None) -> list[Rollout]:
    groups = sampled_groups(policy or tiny_policy(), pool_spec(), slot=2)
    return [replace(rollout, env="rough") for group in groups for rollout in group.rollouts]


def text_of(rollout: Rollout) -> str:
    return description().tokenizer.decode(rollout.completion_tokens.tolist())


def with_text(rollout: Rollout, text: str) -> Rollout:
    tokens = np.array(description().tokenizer.encode(text), dtype=np.int32)
    assert len(tokens) == 3
    return replace(
        rollout,
        completion_tokens=tokens,
        logprobs=np.full(3, -1.5, dtype=np.float32),
        stop_reason=rollout.stop_reason.LENGTH,
    )


def an_assignment(pool: PoolSpec, rollouts: Sequence[Rollout]) -> tuple[Assignment, bytes]:
    lease = Lease(
        pool_digest=pool.digest(),
        lease_id="2-0",
        slot=2,
        attempt=0,
        node="w",
        policy_version=0,
        policy_digest=sha256_hex(b"p"),
        task_indices=(4, 5),
        target_lengths=(0, 0),
        draw_seed="5e" * 32,
        capability_class="any",
        issued_at_ms=0,
        expires_at_ms=1,
    )
    data = write_rollouts(rollouts, pool.digest())
    return Assignment(submission=submission_for(lease, rollouts, data, "rollouts/2"), lease=lease), data


def judged(process: JudgingProcess, pool: PoolSpec, rollouts: Sequence[Rollout]) -> Judgement:
    return process.judge(*an_assignment(pool, rollouts), 0, 7)


def faults_of(judgement: Judgement) -> dict[str, float]:
    prefix = "grading_fault/"
    return {
        name.removeprefix(prefix): count
        for name, count in judgement.verdict.measured.items()
        if name.startswith(prefix)
    }


def test_honest_work_is_judged_as_in_the_same_process_and_the_process_is_kept() -> None:
    pool = rough_pool()
    rollouts = sampled()
    with judging(pool) as process:
        first = judged(process, pool, rollouts)
        pid = process._process and process._process.pid
        second = judged(process, pool, rollouts)
        assert process._process is not None
        assert process._process.pid == pid
        assert process.cpu_s > 0
    environment = load_environment("rough", 0, {})
    tasks = [environment.task("train", index) for index in (4, 5)]
    expected = [environment.grade(tasks[rollout.group], text_of(rollout)).reward for rollout in rollouts]
    assert first == second
    assert first.verdict.outcome is Outcome.ACCEPTED
    assert [result.reward for result in first.evidence.rewards] == expected
    assert faults_of(first) == {}


ONE_FAULT = [("hang", "timeout"), ("hang_in_c", "timeout"), ("hang_without_alarms", "died"), ("die", "died")]
"""What an exception or a number does is in test_evidence."""


@pytest.mark.parametrize(("fault", "kind"), ONE_FAULT)
def test_G1_a_completion_whose_grading_fails_has_no_reward_and_the_others_have_theirs(  # noqa: N802
    fault: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    rollouts = sampled()
    rollouts[5] = with_text(rollouts[5], "121")
    others = [rollout for rollout in rollouts if text_of(rollout) != "121"]
    assert len(others) == 7
    pool = rough_pool(fault=fault, only_text="121")
    with judging(pool, step_s=0.7) as process:
        judgement = judged(process, pool, rollouts)
    assert judgement.verdict.outcome is Outcome.ACCEPTED, "a failure of the environment is not the worker's"
    assert [result.reward is None for result in judgement.evidence.rewards] == [index == 5 for index in range(8)]
    assert faults_of(judgement) == {kind: 1.0}
    told = [record for record in caplog.records if "rough cannot grade" in record.message]
    assert len(told) == 1, "said once, counted always"
    assert kind in told[0].message


def test_a_task_whose_grading_hangs_again_and_again_is_given_up() -> None:
    """Two processes are lost to each of the two tasks, then the rest of it is not tried."""
    pool = rough_pool(fault="die")
    with judging(pool) as process:
        started: list[int] = []
        start = process._start
        process._start = lambda: (started.append(1) if process._process is None else None, start())[1]  # type: ignore[method-assign]
        judgement = judged(process, pool, sampled())
    assert judgement.verdict.outcome is Outcome.ACCEPTED
    assert {result.reward for result in judgement.evidence.rewards} == {None}
    assert faults_of(judgement) == {"died": 8.0}
    assert len(started) == 1 + 2 * judging_process.MAX_LOST_PER_TASK


def test_a_submission_that_ends_many_processes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging_process, "MAX_LOST_PER_SUBMISSION", 1)
    pool = rough_pool(fault="die")
    with judging(pool) as process:
        assert faults_of(judged(process, pool, sampled())) == {"died": 8.0}


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("raise", "RuntimeError: a bug in the grader"),
        ("hang", "building the tasks ended the judging process: timeout"),
        ("die", "building the tasks ended the judging process: died"),
    ],
)
def test_tasks_that_cannot_be_built_are_our_fault_and_the_next_submission_finds_a_process(
    fault: str, sentence: str
) -> None:
    pool = rough_pool(fault=fault, where="task")
    with judging(pool) as process:
        for _ in range(2):
            with pytest.raises(OurFault, match=sentence):
                judged(process, pool, sampled())


def test_a_file_whose_reading_hangs_or_kills_is_never_accepted_and_never_blamed() -> None:
    """I13."""
    pool = rough_pool()
    assignment, data = an_assignment(pool, sampled())
    with judging(pool, step_s=1e-4) as process, pytest.raises(OurFault, match="ended the judging process: timeout"):
        process.judge(assignment, data * 50, 0, 0)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [("raise", "a bug in the grader"), ("die", "ended with code 3 at its start")],
)
def test_an_environment_that_cannot_be_loaded_is_said(fault: str, sentence: str) -> None:
    with judging(rough_pool(fault=fault, where="load")) as process, pytest.raises(OurFault, match=sentence):
        process.start()


def test_an_environment_that_is_not_installed_is_the_persons_to_mend() -> None:
    with judging(rough_pool("ruff")) as process, pytest.raises(UserError, match='unknown environment "ruff"'):
        process.start()


@pytest.mark.parametrize("name", ["rough-partial", "rough-object", "rough-lambda"])
def test_G2_any_callable_makes_an_environment(name: str) -> None:  # noqa: N802
    """Nothing is sent to the process but a name, so a lambda does as well as a class."""
    pool = rough_pool(name)
    with judging(pool) as process:
        assert judged(process, pool, sampled()).verdict.outcome is Outcome.ACCEPTED


def test_the_control_tells_a_broken_environment_from_completions_that_break_it() -> None:
    assignment, _ = an_assignment(rough_pool(), sampled())
    for args, complaint in (
        ({"fault": "raise", "only_text": "121"}, ""),
        ({"fault": "raise"}, "RuntimeError: a bug in the grader"),
    ):
        with judging(rough_pool(**args)) as process:
            found = process.control(assignment)
        assert complaint in found
        assert bool(found) is bool(complaint)


def test_a_stop_does_not_wait_for_a_hanging_grader() -> None:
    pool = rough_pool(fault="hang")
    process = JudgingProcess(description().policy_files, pool, "v", step_s=300.0, max_bytes=8 << 30)
    errors: list[Exception] = []

    def judge() -> None:
        try:
            judged(process, pool, sampled())
        except OurFault as error:
            errors.append(error)

    thread = threading.Thread(target=judge)
    thread.start()
    while process._progress.read()[1] != 0 or process._progress.read()[0] == 0:
        time.sleep(0.01)
    process.close()
    thread.join(20)
    assert not thread.is_alive()
    assert "the validator stops" in str(errors[0])
    with pytest.raises(OurFault, match="the validator stops"):
        process.start()


def test_the_token_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "secret" * 8)
    assert "secret" not in str(judging_process._environment())


def test_what_a_process_answers_is_bounded_and_typed() -> None:
    read_fd, write_fd = os.pipe()
    try:
        os.write(write_fd, (1 << 50).to_bytes(8, "big"))
        with pytest.raises(OurFault, match="at most 10 expected"):
            receive(read_fd, Told, 10)
        os.write(write_fd, (3).to_bytes(8, "big") + b"abc")
        with pytest.raises(OurFault, match="nonsense"):
            receive(read_fd, Told, 10)
    finally:
        os.close(read_fd)
        os.close(write_fd)


def test_no_process_and_no_file_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    before = len(os.listdir("/proc/self/fd"))
    pool = rough_pool(fault="die", only_text="121")
    for _ in range(2):
        rollouts = sampled()
        rollouts[0] = with_text(rollouts[0], "121")
        with judging(pool) as process:
            judged(process, pool, rollouts)
            pid = process._process.pid if process._process else 0
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert len(os.listdir("/proc/self/fd")) == before
