"""One submission, one verdict: a function of bytes, evidence and rules.

    file there -> size -> digest -> footer, schema, pool -> `checks.CHECKS` -> `proof_checks` -> rewards

in the order of `RejectReason`, stopping at the first failure. Whose fault it is follows from the reason alone
(`RejectReason.blame`). This module does not know tokenizers, graders, stores or clocks: what they say is an argument.
"""

from collections.abc import Callable, Sequence
from functools import partial

from farflung.errors import PeerFault
from farflung.validation.case import Case, JudgeRules, SlotEvidence
from farflung.validation.checks import CHECKS
from farflung.validation.proof_checks import measured, proof_problem
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease
from farflung.wire.proof import RolloutFigures
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import read_rollouts
from farflung.wire.submission import Submission
from farflung.wire.verdict import SLASHABLE as SLASHABLE
from farflung.wire.verdict import EvidenceBundle, Judgement, Outcome, RejectReason, RewardResult, Verdict

GradeAll = Callable[[Sequence[Rollout]], Sequence[RewardResult]]
"""The validator's own grades, one per rollout and in their order."""

Examine = Callable[[Case], Sequence[RolloutFigures]]
"""What the validator's own model says of the rollouts, one per rollout and in their order."""

MAX_DETAIL_CHARS = 1000


def judge(
    submission: Submission,
    lease: Lease,
    data: bytes | None,
    rules: JudgeRules,
    evidence: SlotEvidence,
    *,
    current_version: int,
    validator: str,
    now_ms: int,
    grade: GradeAll,
    examine: Examine | None = None,
) -> Judgement:
    """Judge a submission by its file.

    Args:
        data: the file's bytes; None when the store does not have it.
        evidence: tasks and prompts that the validator built from the lease.
        current_version: the newest policy version that the validator knows.
        grade: called once, with rollouts that passed every other check. What it raises passes through: it is the
            validator's own fault, which `not_accepted` turns into a judgement.
        examine: in pools with proofs; called once, before `grade`, as that is.
    """
    refuse = partial(not_accepted, submission, pool_digest=rules.pool_digest, validator=validator, now_ms=now_ms)
    try:
        rollouts = _read(submission, data, rules)
    except PeerFault as fault:
        reason = RejectReason(fault.reason)
        return refuse(reason, fault.detail)
    case = Case(
        submission=submission,
        lease=lease,
        rollouts=rollouts,
        rules=rules,
        evidence=evidence,
        current_version=current_version,
    )
    for reason, check in CHECKS:
        detail = check(case)
        if detail is not None:
            return refuse(reason, detail)
    figures: tuple[RolloutFigures, ...] = ()
    if rules.pool.proofs is not None:
        assert examine is not None, "a pool with proofs is judged with what its model computes"
        figures = tuple(examine(case))
        if problem := proof_problem(figures, rules.pool.proofs.reject):
            is_slashable = proof_problem(figures, rules.pool.proofs.slash) is not None
            return refuse(*problem, figures=figures, is_slashable=is_slashable)
    rewards = tuple(grade(rollouts))
    assert [(result.group, result.sample) for result in rewards] == [(row.group, row.sample) for row in rollouts]
    bundle = EvidenceBundle(submission_digest=submission.digest(), rewards=rewards, figures=figures)
    found = _measured(case, rewards) | (measured(figures) if figures else {})
    return _judgement(bundle, Outcome.ACCEPTED, None, found, rules.pool_digest, validator, now_ms)


def not_accepted(
    submission: Submission,
    reason: RejectReason,
    detail: str,
    *,
    pool_digest: str,
    validator: str,
    now_ms: int,
    figures: tuple[RolloutFigures, ...] = (),
    is_slashable: bool = False,
) -> Judgement:
    """The judgement that follows from a reason: rejected, expired, or unjudged.

    `RejectReason.VALIDATOR_FAULT` is what a validator posts when it failed itself: never accepted, never slashed.

    Args:
        figures: what proofs were compared with, if they were.
        is_slashable: the figures lie beyond the wider thresholds as well.
    """
    bundle = EvidenceBundle(
        submission_digest=submission.digest(), rewards=(), detail=detail[:MAX_DETAIL_CHARS], figures=figures
    )
    found = measured(figures) | {SLASHABLE: float(is_slashable)} if figures else {}
    return _judgement(bundle, reason.outcome, reason, found, pool_digest, validator, now_ms)


def _read(submission: Submission, data: bytes | None, rules: JudgeRules) -> list[Rollout]:
    pool = rules.pool
    if data is None:
        raise PeerFault(RejectReason.FILE_MISSING, f"nothing under {submission.file_key}")
    if max(len(data), submission.file_bytes) > pool.max_file_bytes:
        raise PeerFault(RejectReason.FILE_TOO_LARGE, f"{len(data)} bytes, at most {pool.max_file_bytes} allowed")
    if (len(data), sha256_hex(data)) != (submission.file_bytes, submission.file_digest):
        raise PeerFault(RejectReason.FILE_DIGEST, f"{len(data)} bytes are not file {submission.file_digest}")
    return read_rollouts(
        data,
        pool_digest=rules.pool_digest,
        max_rollouts=pool.rollouts_per_slot,
        max_tokens_per_list=max(pool.max_prompt_tokens, pool.max_completion_tokens),
    )


def _measured(case: Case, rewards: Sequence[RewardResult]) -> dict[str, float]:
    graded = [result.reward for result in rewards if result.reward is not None]
    measured = {
        "completion_tokens": float(case.submission.num_tokens),
        "num_ungraded": float(len(rewards) - len(graded)),
        "staleness": float(case.current_version - case.submission.policy_version),
    }
    if graded:
        measured["reward_mean"] = sum(graded) / len(graded)
    return measured


def _judgement(
    bundle: EvidenceBundle,
    outcome: Outcome,
    reason: RejectReason | None,
    measured: dict[str, float],
    pool_digest: str,
    validator: str,
    now_ms: int,
) -> Judgement:
    verdict = Verdict(
        pool_digest=pool_digest,
        submission_digest=bundle.submission_digest,
        validator=validator,
        outcome=outcome,
        reason=reason,
        evidence_digest=bundle.digest(),
        rewards_digest=bundle.rewards_digest if outcome is Outcome.ACCEPTED else "",
        measured=measured,
        judged_at_ms=now_ms,
    )
    return Judgement(verdict=verdict, evidence=bundle)
