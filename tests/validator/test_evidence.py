"""What a validator finds out by itself, and that its own trouble is nobody's fault."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from farflung.envs.base import Grade
from farflung.errors import OurFault
from farflung.trainer.policy import Policy
from farflung.validator.evidence import POLICY_FILES, Judge, own_fault
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import write_rollouts
from farflung.wire.submission import Assignment
from farflung.wire.task import Task
from farflung.wire.verdict import Outcome, RejectReason
from running_pool import submission_for
from tiny_pool import description, environment, pool_spec, sampled_groups, tiny_policy

POOL = pool_spec()


def a_judge(**changes: Any) -> Judge:
    return Judge.from_policy(description().policy_files, pool_spec(**changes), "v")


def sampled(policy: Policy | None = None) -> list[Rollout]:
    return [rollout for group in sampled_groups(policy or tiny_policy(), POOL, slot=2) for rollout in group.rollouts]


def an_assignment(rollouts: Sequence[Rollout], tasks: tuple[int, ...] = (4, 5)) -> tuple[Assignment, bytes]:
    lease = Lease(
        pool_digest=POOL.digest(),
        lease_id="2-0",
        slot=2,
        attempt=0,
        node="w",
        policy_version=0,
        policy_digest=sha256_hex(b"p"),
        task_indices=tasks,
        target_lengths=(0,) * len(tasks),
        draw_seed="5e" * 32,
        capability_class="any",
        issued_at_ms=0,
        expires_at_ms=1,
    )
    data = write_rollouts(rollouts, POOL.digest())
    return Assignment(submission=submission_for(lease, rollouts, data, "rollouts/2"), lease=lease), data


def test_the_worth_of_every_completion_is_the_environments_not_the_workers() -> None:
    tokenizer = description().tokenizer
    answers = [environment().task("train", index).answer for index in (4, 5)]
    rollouts = []
    for rollout in sampled():
        text = answers[rollout.group] if rollout.sample == 1 else answers[rollout.group][::-1] + "0"
        tokens = np.array([*tokenizer.encode(text), 1][:3], dtype=np.int32)
        rollouts.append(
            Rollout(
                env=rollout.env,
                task_id=rollout.task_id,
                group=rollout.group,
                sample=rollout.sample,
                prompt_tokens=rollout.prompt_tokens,
                completion_tokens=tokens,
                logprobs=np.full(len(tokens), -1.0, dtype=np.float32),
                stop_reason=rollout.stop_reason.EOS if tokens[-1] == 1 else rollout.stop_reason.LENGTH,
                policy_version=0,
                claimed_reward=1.0,
            )
        )
    assignment, data = an_assignment(rollouts)
    judgement = a_judge().judge(assignment, data, 0, 7)
    assert judgement.verdict.outcome is Outcome.ACCEPTED, judgement.evidence.detail
    assert [(result.group, result.sample, result.reward) for result in judgement.evidence.rewards] == [
        (group, sample, float(sample == 1)) for group in range(2) for sample in range(4)
    ]
    assert (judgement.verdict.validator, judgement.verdict.judged_at_ms) == ("v", 7)


def test_prompts_and_tasks_are_built_from_the_lease() -> None:
    """grail#26, complaint 36: what a worker says it was asked counts for nothing."""
    honest = sampled()
    accepted = a_judge().judge(*an_assignment(honest), 0, 0)
    assert accepted.verdict.outcome is Outcome.ACCEPTED
    swapped = a_judge().judge(*an_assignment(honest, tasks=(5, 4)), 0, 0)
    assert swapped.verdict.reason is RejectReason.WRONG_TASK


@pytest.mark.parametrize("missing", [None, b""])
def test_a_file_that_is_not_there_is_nobodys_rejection(missing: bytes | None) -> None:
    assignment, _ = an_assignment(sampled())
    judgement = a_judge().judge(assignment, missing, 0, 0)
    expected = Outcome.UNJUDGED if missing is None else Outcome.REJECTED
    assert judgement.verdict.outcome is expected


def test_a_task_that_cannot_be_built_is_the_validators_fault() -> None:
    assignment, data = an_assignment(sampled(), tasks=(4, 10**6))
    with pytest.raises(OurFault, match="IndexError: task 1000000"):
        a_judge().judge(assignment, data, 0, 0)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), MemoryError(), KeyError("x"), ZeroDivisionError()])
def test_G1_code_that_raises_gets_no_reward_and_the_fault_is_counted(  # noqa: N802
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    judge = a_judge()
    grade, num_calls = judge._environment.grade, 0

    def breaks(*args: Any) -> Grade:
        nonlocal num_calls
        num_calls += 1
        if num_calls in (2, 5):
            raise error
        return grade(*args)

    monkeypatch.setattr(judge._environment, "grade", breaks)
    judgement = judge.judge(*an_assignment(sampled()), 0, 0)
    assert judgement.verdict.outcome is Outcome.ACCEPTED
    assert [result.reward is None for result in judgement.evidence.rewards] == [index in (1, 4) for index in range(8)]
    assert judgement.verdict.measured[f"grading_fault/{type(error).__name__}"] == 2
    assert judge.first_fault.startswith(type(error).__name__)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1001.0, -1e30])
@pytest.mark.parametrize("field", ["reward", "correct", "component"])
def test_G1_a_number_out_of_range_is_no_reward(  # noqa: N802
    monkeypatch: pytest.MonkeyPatch, value: float, field: str
) -> None:
    judge = a_judge()
    grade = Grade(
        reward=value if field == "reward" else 1.0,
        correct=value if field == "correct" else 1.0,
        components={"part": value} if field == "component" else {},
    )
    monkeypatch.setattr(judge._environment, "grade", lambda *_: grade)
    judgement = judge.judge(*an_assignment(sampled()), 0, 0)
    assert {result.reward for result in judgement.evidence.rewards} == {None}
    assert judgement.verdict.measured["grading_fault/RewardOutOfRange"] == 8
    assert "pool.max_abs_reward is 1000" in judge.first_fault


def test_the_largest_reward_that_is_allowed_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = a_judge(max_abs_reward=1.5)
    monkeypatch.setattr(judge._environment, "grade", lambda *_: Grade(reward=-1.5))
    rollouts = sampled()
    assignment, _ = an_assignment(rollouts)
    pool = pool_spec(max_abs_reward=1.5)
    data = write_rollouts(rollouts, pool.digest())
    submission = replace(
        assignment.submission, pool_digest=pool.digest(), file_digest=sha256_hex(data), file_bytes=len(data)
    )
    lease = replace(assignment.lease, pool_digest=pool.digest())
    judgement = judge.judge(Assignment(submission=submission, lease=lease), data, 0, 0)
    assert {result.reward for result in judgement.evidence.rewards} == {-1.5}


def test_what_is_posted_after_a_fault_of_its_own_neither_accepts_nor_blames() -> None:
    assignment, _ = an_assignment(sampled())
    judgement = own_fault(assignment, "x" * 100_000, POOL, "v", 3)
    assert (judgement.verdict.outcome, judgement.verdict.reason) == (Outcome.UNJUDGED, RejectReason.VALIDATOR_FAULT)
    assert judgement.verdict.submission_digest == assignment.submission.digest()
    assert judgement.evidence.rewards == ()
    assert len(judgement.evidence.detail) <= 1000


def test_a_completion_that_cannot_be_graded_has_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = a_judge()

    def grade(task: Task, completion: str) -> Grade:
        return Grade(reward=None)

    monkeypatch.setattr(judge._environment, "grade", grade)
    judgement = judge.judge(*an_assignment(sampled()), 0, 0)
    assert judgement.verdict.outcome is Outcome.ACCEPTED
    assert {result.reward for result in judgement.evidence.rewards} == {None}
    assert judgement.verdict.measured["num_ungraded"] == 8


def test_files_of_another_tokenizer_are_refused() -> None:
    with pytest.raises(OurFault, match="is not the pool's"):
        a_judge(tokenizer_digest=sha256_hex(b"other"))


def test_judging_needs_no_weights() -> None:
    assert {"config.json", "tokenizer.json"} <= POLICY_FILES
    assert "model.safetensors" not in POLICY_FILES


def test_the_lease_counts_not_what_the_submission_repeats_of_it() -> None:
    assignment, data = an_assignment(sampled())
    other = Assignment(submission=replace(assignment.submission, attempt=1), lease=assignment.lease)
    assert a_judge().judge(other, data, 0, 0).verdict.reason is RejectReason.WRONG_LEASE


@pytest.mark.parametrize(("audited", "ungraded"), [(None, 0), (3, 4)])
def test_what_is_audited_is_graded_twice_and_a_grade_that_changes_its_mind_is_worth_nothing(
    monkeypatch: pytest.MonkeyPatch, audited: int | None, ungraded: int
) -> None:
    judge = a_judge()
    num_graded = 0

    def moody(self: object, task: Task, text: str) -> Grade:
        nonlocal num_graded
        num_graded += 1
        is_second_time = num_graded > 8
        return Grade(reward=float(is_second_time and num_graded % 2))

    monkeypatch.setattr(type(environment()), "grade", moody)
    assignment, data = an_assignment(sampled())
    judgement = judge.judge(replace(assignment, audited_rollout=audited), data, 0, 0)
    assert num_graded == (8 if audited is None else 16)
    assert sum(result.reward is None for result in judgement.evidence.rewards) == ungraded
    faults = {name: count for name, count in judgement.verdict.measured.items() if name.startswith("grading_fault/")}
    assert faults == ({} if audited is None else {"grading_fault/NotReproducible": 4.0})
