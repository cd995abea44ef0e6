"""Every reject reason has a `mallory_*` that only its check catches, next to the honest twin that passes them all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pytest

from farflung.validation.case import Case, JudgeRules, SlotEvidence
from farflung.validation.checks import CHECKS
from farflung.validation.judge import judge, not_accepted
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.rollout import Rollout, StopReason
from farflung.wire.rollout_file import write_rollouts
from farflung.wire.submission import Submission
from farflung.wire.verdict import Judgement, Outcome, RejectReason, RewardResult

EOS, OTHER_EOS, PAD, VOCAB = 1, 2, 0, 32
LONGEST = 6
POOL = PoolSpec(
    name="demo",
    environment=EnvironmentSpec(name="sort-digits", num_tasks=100, target_lengths=(0, 4)),
    tokenizer_digest=sha256_hex(b"tokenizer"),
    model_config_digest=sha256_hex(b"config"),
    group_size=2,
    groups_per_slot=2,
    groups_per_batch=4,
    max_staleness=4,
    max_outstanding_groups=8,
    temperature=1.0,
    max_prompt_tokens=8,
    max_completion_tokens=LONGEST,
    lease_s=60.0,
    max_attempts=3,
    max_file_bytes=1 << 16,
)
RULES = JudgeRules(pool=POOL, vocab_size=VOCAB, eos_token_ids=(EOS, OTHER_EOS), reserved_token_ids=(PAD,))
EVIDENCE = SlotEvidence(
    env="sort-digits",
    task_ids=("train/17", "train/4"),
    prompt_tokens=(np.array([5, 6, 7], np.int32), np.array([5, 8], np.int32)),
)
LEASE = Lease(
    pool_digest=POOL.digest(),
    lease_id="12-0",
    slot=12,
    attempt=0,
    node="worker-1",
    policy_version=7,
    policy_digest=sha256_hex(b"policy"),
    task_indices=(17, 4),
    target_lengths=(0, 4),
    draw_seed=sha256_hex(b"seed"),
    capability_class="any",
    issued_at_ms=0,
    expires_at_ms=60_000,
)


def rollout(group: int, sample: int, tokens: Sequence[int] = (9, 10, EOS), **changes: Any) -> Rollout:
    values: dict[str, Any] = {
        "env": EVIDENCE.env,
        "task_id": EVIDENCE.task_ids[group],
        "group": group,
        "sample": sample,
        "prompt_tokens": EVIDENCE.prompt_tokens[group],
        "completion_tokens": np.array(tokens, np.int32),
        "logprobs": np.full(len(tokens), -1.5, np.float32),
        "stop_reason": StopReason.EOS,
        "policy_version": 7,
        "target_length": LEASE.target_lengths[group],
    }
    return Rollout(**{**values, **changes})


HONEST = [
    rollout(0, 0),
    rollout(0, 1, [9, 10, 11, 12, 13, 14], stop_reason=StopReason.LENGTH),
    rollout(1, 0, [9, 10, 11, 12, 13, OTHER_EOS]),
    rollout(1, 1, [EOS], logprobs=np.array([0.0], np.float32)),
]


@dataclass(frozen=True)
class Claim:
    """What a worker hands in; consistent with itself unless changed."""

    rollouts: Sequence[Rollout]
    data: bytes | None
    submission: Submission
    lease: Lease = LEASE
    current_version: int = 9

    def changed(self, **changes: Any) -> "Claim":
        return replace(self, submission=msgspec.structs.replace(self.submission, **changes))

    def judged(
        self,
        grade: Callable[[Sequence[Rollout]], Sequence[RewardResult]] | None = None,
        evidence: SlotEvidence = EVIDENCE,
    ) -> Judgement:
        return judge(
            self.submission,
            self.lease,
            self.data,
            RULES,
            evidence,
            current_version=self.current_version,
            validator="validator-1",
            now_ms=1234,
            grade=grade or grade_by_length,
        )


def grade_by_length(rollouts: Sequence[Rollout]) -> list[RewardResult]:
    """Shorter is better; a single token cannot be graded."""
    rewards = [1.0 / len(row.completion_tokens) if len(row.completion_tokens) > 1 else None for row in rollouts]
    return [
        RewardResult(group=row.group, sample=row.sample, reward=reward)
        for row, reward in zip(rollouts, rewards, strict=True)
    ]


def claim(rollouts: Sequence[Rollout] = HONEST, pool_digest: str = LEASE.pool_digest, **changes: Any) -> Claim:
    data = write_rollouts(rollouts, pool_digest)
    values: dict[str, Any] = {
        "pool_digest": LEASE.pool_digest,
        "node": "worker-1",
        "lease_id": "12-0",
        "slot": 12,
        "attempt": 0,
        "policy_version": 7,
        "policy_digest": LEASE.policy_digest,
        "file_key": "rollouts/7/12-0.parquet",
        "file_digest": sha256_hex(data),
        "file_bytes": len(data),
        "num_rollouts": len(rollouts),
        "num_tokens": sum(len(row.completion_tokens) for row in rollouts),
    }
    return Claim(rollouts, data, Submission(**{**values, **changes}))


def with_row(index: int, **changes: Any) -> list[Rollout]:
    return [replace(row, **changes) if position == index else row for position, row in enumerate(HONEST)]


def with_tokens(index: int, tokens: Sequence[int], stop_reason: StopReason) -> list[Rollout]:
    logprobs = np.full(len(tokens), -1.5, np.float32)
    return with_row(index, completion_tokens=np.array(tokens, np.int32), logprobs=logprobs, stop_reason=stop_reason)


def test_an_honest_claim_is_accepted_with_the_validators_rewards() -> None:
    honest = claim()
    judgement = honest.judged()
    assert judgement.evidence.submission_digest == honest.submission.digest()
    assert judgement.evidence.rewards == tuple(grade_by_length(HONEST))
    verdict = judgement.verdict
    assert (verdict.outcome, verdict.reason) == (Outcome.ACCEPTED, None)
    assert verdict.pool_digest == POOL.digest()
    assert verdict.submission_digest == honest.submission.digest()
    assert verdict.evidence_digest == judgement.evidence.digest()
    assert (verdict.validator, verdict.judged_at_ms) == ("validator-1", 1234)
    expected = {
        "completion_tokens": 16.0,
        "num_ungraded": 1.0,
        "staleness": 2.0,
        "reward_mean": (1 / 3 + 1 / 6 + 1 / 6) / 3,
    }
    assert verdict.measured == pytest.approx(expected)


def test_a_verdict_is_a_function_of_its_arguments() -> None:
    assert claim().judged().to_bytes() == claim().judged().to_bytes()


def test_a_slot_that_nobody_could_grade_has_no_mean_reward() -> None:
    def shrug(rollouts: Sequence[Rollout]) -> list[RewardResult]:
        return [RewardResult(group=row.group, sample=row.sample, reward=None) for row in rollouts]

    verdict = claim().judged(shrug).verdict
    assert verdict.outcome is Outcome.ACCEPTED
    assert "reward_mean" not in verdict.measured
    assert verdict.measured["num_ungraded"] == 4.0


# Claims that fail before the file is understood


def mallory_without_a_file() -> Claim:
    return replace(claim(), data=None)


def mallory_with_a_file_above_the_limit() -> Claim:
    data = bytes(POOL.max_file_bytes + 1)
    return replace(claim(), data=data).changed(file_bytes=len(data), file_digest=sha256_hex(data))


def mallory_who_swaps_the_file_later() -> Claim:
    honest = claim()
    assert honest.data is not None
    return replace(honest, data=honest.data[:-1] + b"2")


def mallory_who_appends_to_the_file() -> Claim:
    honest = claim()
    assert honest.data is not None
    return replace(honest, data=honest.data + b"\0")


def mallory_with_random_bytes() -> Claim:
    data = bytes(range(256))
    return replace(claim(), data=data).changed(file_bytes=len(data), file_digest=sha256_hex(data))


def mallory_with_one_rollout_too_many() -> Claim:
    return claim([*HONEST, rollout(1, 1)])


def mallory_with_a_list_longer_than_prompts_and_completions_may_be() -> Claim:
    return claim(with_tokens(0, [9] * 9, StopReason.LENGTH))


def mallory_with_another_column() -> Claim:
    data = write_rollouts(HONEST, POOL.digest())
    forged = data.replace(b"task_id", b"task_xd")
    return replace(claim(), data=forged).changed(file_bytes=len(forged), file_digest=sha256_hex(forged))


def mallory_with_the_file_of_another_pool() -> Claim:
    return claim(pool_digest=sha256_hex(b"another pool"))


UNREADABLE: list[tuple[Callable[[], Claim], RejectReason, Outcome]] = [
    (mallory_without_a_file, RejectReason.FILE_MISSING, Outcome.UNJUDGED),
    (mallory_with_a_file_above_the_limit, RejectReason.FILE_TOO_LARGE, Outcome.REJECTED),
    (mallory_who_swaps_the_file_later, RejectReason.FILE_DIGEST, Outcome.REJECTED),
    (mallory_who_appends_to_the_file, RejectReason.FILE_DIGEST, Outcome.REJECTED),
    (mallory_with_random_bytes, RejectReason.MALFORMED_RECORD, Outcome.REJECTED),
    (mallory_with_one_rollout_too_many, RejectReason.FOOTER_LIMITS, Outcome.REJECTED),
    (mallory_with_a_list_longer_than_prompts_and_completions_may_be, RejectReason.FOOTER_LIMITS, Outcome.REJECTED),
    (mallory_with_another_column, RejectReason.SCHEMA, Outcome.REJECTED),
    (mallory_with_the_file_of_another_pool, RejectReason.WRONG_POOL, Outcome.REJECTED),
]


# Claims that can be read


def mallory_of_another_pool() -> Claim:
    return claim(pool_digest=POOL.digest()).changed(pool_digest=sha256_hex(b"another pool"))


def mallory_under_anothers_name() -> Claim:
    return claim(node="worker-2")


def mallory_on_another_slot() -> Claim:
    return claim(slot=13)


def mallory_with_a_lease_that_was_lost() -> Claim:
    return claim(lease_id="12-1")


def mallory_with_an_earlier_attempt() -> Claim:
    return replace(claim(), lease=msgspec.structs.replace(LEASE, attempt=1))


def mallory_who_claims_a_newer_version() -> Claim:
    return claim(policy_version=8)


def mallory_who_claims_another_policy() -> Claim:
    return claim(policy_digest=sha256_hex(b"another policy"))


def mallory_whose_rows_name_another_version() -> Claim:
    return claim(with_row(2, policy_version=6))


def nobodys_fault_but_too_late() -> Claim:
    return replace(claim(), current_version=12)


def mallory_who_drops_the_last_rollout() -> Claim:
    return claim(HONEST[:3])


def mallory_who_repeats_her_best_sample() -> Claim:
    return claim([HONEST[0], rollout(0, 0), *HONEST[2:]])


def mallory_who_swaps_two_samples() -> Claim:
    return claim([HONEST[1], HONEST[0], *HONEST[2:]])


def mallory_who_swaps_two_groups() -> Claim:
    return claim([*HONEST[2:], *HONEST[:2]])


def mallory_who_claims_more_tokens() -> Claim:
    return claim(num_tokens=17)


def mallory_who_claims_more_rollouts() -> Claim:
    return claim(num_rollouts=5)


def mallory_with_a_group_beyond_the_slot() -> Claim:
    return claim(with_row(3, group=2, sample=0))


def mallory_with_an_easier_task() -> Claim:
    return claim(with_row(1, task_id="train/18"))


def mallory_with_a_task_of_another_environment() -> Claim:
    return claim(with_row(1, env="mod-sum"))


def mallory_with_a_hint_in_the_prompt() -> Claim:
    return claim(with_row(2, prompt_tokens=np.array([5, 8, 9], np.int32)))


def mallory_with_another_prompt_of_the_same_length() -> Claim:
    return claim(with_row(2, prompt_tokens=np.array([5, 9], np.int32)))


def mallory_with_a_token_beyond_the_vocabulary() -> Claim:
    return claim(with_tokens(0, [9, VOCAB, EOS], StopReason.EOS))


def mallory_with_a_negative_token() -> Claim:
    return claim(with_tokens(0, [9, -1, EOS], StopReason.EOS))


def mallory_with_a_reserved_token() -> Claim:
    return claim(with_tokens(0, [9, PAD, EOS], StopReason.EOS))


def mallory_who_stops_early() -> Claim:
    return claim(with_tokens(0, [9, 10], StopReason.LENGTH))


def mallory_who_calls_an_early_stop_a_stop_string() -> Claim:
    return claim(with_tokens(0, [9, 10], StopReason.STOP))


def mallory_who_claims_an_end_that_was_not_drawn() -> Claim:
    return claim(with_tokens(0, [9, 10], StopReason.EOS))


def mallory_who_goes_on_after_the_end() -> Claim:
    return claim(with_tokens(0, [9, OTHER_EOS, 10, EOS], StopReason.EOS))


def mallory_who_goes_on_beyond_the_limit() -> Claim:
    return claim(with_tokens(0, [9] * (LONGEST + 1), StopReason.LENGTH))


def mallory_who_calls_an_end_at_the_limit_a_length() -> Claim:
    return claim(with_row(2, stop_reason=StopReason.LENGTH))


def mallory_who_calls_a_length_an_end() -> Claim:
    return claim(with_row(1, stop_reason=StopReason.EOS))


def mallory_with_an_easier_target_length() -> Claim:
    return claim(with_row(3, target_length=0))


def mallory_with_a_probability_above_one() -> Claim:
    return claim(with_row(0, logprobs=np.array([-1.5, 0.01, -1.5], np.float32)))


def mallory_with_a_token_that_nobody_draws() -> Claim:
    return claim(with_row(0, logprobs=np.array([-1.5, -3e38, -1.5], np.float32)))


def mallory_who_is_certain_of_everything() -> Claim:
    return claim([replace(row, logprobs=np.zeros(len(row.completion_tokens), np.float32)) for row in HONEST])


def mallory_who_is_rather_sure_of_two_different_completions() -> Claim:
    rows = [replace(row, logprobs=np.full(len(row.completion_tokens), -0.5, np.float32)) for row in HONEST[:2]]
    return claim([*rows, *HONEST[2:]])


def mallory_with_a_proof_that_nobody_asked_for() -> Claim:
    """In an open pool; it would be kept and carried about for nothing."""
    return claim(with_row(0, proof=b"\0" * 24))


READABLE: list[tuple[Callable[[], Claim], RejectReason]] = [
    (mallory_of_another_pool, RejectReason.WRONG_POOL),
    (mallory_under_anothers_name, RejectReason.WRONG_LEASE),
    (mallory_on_another_slot, RejectReason.WRONG_LEASE),
    (mallory_with_a_lease_that_was_lost, RejectReason.WRONG_LEASE),
    (mallory_with_an_earlier_attempt, RejectReason.WRONG_LEASE),
    (mallory_who_claims_a_newer_version, RejectReason.WRONG_LEASE),
    (mallory_who_claims_another_policy, RejectReason.WRONG_LEASE),
    (mallory_whose_rows_name_another_version, RejectReason.WRONG_LEASE),
    (nobodys_fault_but_too_late, RejectReason.VERSION_WINDOW),
    (mallory_who_drops_the_last_rollout, RejectReason.ROLLOUT_COUNT),
    (mallory_who_repeats_her_best_sample, RejectReason.ROLLOUT_COUNT),
    (mallory_who_swaps_two_samples, RejectReason.ROLLOUT_COUNT),
    (mallory_who_swaps_two_groups, RejectReason.ROLLOUT_COUNT),
    (mallory_who_claims_more_tokens, RejectReason.ROLLOUT_COUNT),
    (mallory_who_claims_more_rollouts, RejectReason.ROLLOUT_COUNT),
    (mallory_with_an_easier_task, RejectReason.WRONG_TASK),
    (mallory_with_a_task_of_another_environment, RejectReason.WRONG_TASK),
    (mallory_with_a_hint_in_the_prompt, RejectReason.PROMPT),
    (mallory_with_another_prompt_of_the_same_length, RejectReason.PROMPT),
    (mallory_with_a_token_beyond_the_vocabulary, RejectReason.TOKEN_RANGE),
    (mallory_with_a_negative_token, RejectReason.TOKEN_RANGE),
    (mallory_with_a_reserved_token, RejectReason.TOKEN_RANGE),
    (mallory_who_stops_early, RejectReason.TERMINATION),
    (mallory_who_calls_an_early_stop_a_stop_string, RejectReason.TERMINATION),
    (mallory_who_claims_an_end_that_was_not_drawn, RejectReason.TERMINATION),
    (mallory_who_goes_on_after_the_end, RejectReason.TERMINATION),
    (mallory_who_goes_on_beyond_the_limit, RejectReason.TERMINATION),
    (mallory_who_calls_an_end_at_the_limit_a_length, RejectReason.TERMINATION),
    (mallory_who_calls_a_length_an_end, RejectReason.TERMINATION),
    (mallory_with_an_easier_target_length, RejectReason.TARGET_LENGTH),
    (mallory_with_a_probability_above_one, RejectReason.LOGPROB_RANGE),
    (mallory_with_a_token_that_nobody_draws, RejectReason.LOGPROB_RANGE),
    (mallory_who_is_certain_of_everything, RejectReason.LOGPROB_RANGE),
    (mallory_who_is_rather_sure_of_two_different_completions, RejectReason.LOGPROB_RANGE),
    (mallory_with_a_proof_that_nobody_asked_for, RejectReason.PROOF_SHAPE),
]


def never_grade(rollouts: Sequence[Rollout]) -> Sequence[RewardResult]:
    raise AssertionError("graded although a cheaper check failed")


@pytest.mark.parametrize(("mallory", "reason", "outcome"), UNREADABLE)
def test_an_unreadable_file_gets_its_reason(
    mallory: Callable[[], Claim], reason: RejectReason, outcome: Outcome
) -> None:
    judgement = mallory().judged(never_grade)
    assert (judgement.verdict.reason, judgement.verdict.outcome) == (reason, outcome), judgement.evidence.detail
    assert judgement.evidence.rewards == ()
    assert judgement.evidence.detail


@pytest.mark.parametrize(("mallory", "reason"), READABLE)
def test_each_cheat_is_caught_by_its_check_and_by_no_other(mallory: Callable[[], Claim], reason: RejectReason) -> None:
    made = mallory()
    judgement = made.judged(never_grade)
    assert judgement.verdict.reason is reason, judgement.evidence.detail
    assert judgement.verdict.outcome is reason.outcome
    case = Case(
        submission=made.submission,
        lease=made.lease,
        rollouts=made.rollouts,
        rules=RULES,
        evidence=EVIDENCE,
        current_version=made.current_version,
    )
    assert [found for found, check in CHECKS if check(case) is not None] == [reason]


def test_where_a_task_offers_no_budget_the_task_says_what_is_asked_for_not_the_lease() -> None:
    evidence = replace(EVIDENCE, target_lengths=(0, 0))
    honest = claim([replace(row, target_length=0) for row in HONEST])
    assert honest.judged(evidence=evidence).verdict.outcome is Outcome.ACCEPTED
    assert honest.judged(never_grade).verdict.reason is RejectReason.TARGET_LENGTH
    as_leased = claim(HONEST)
    assert as_leased.judged(never_grade, evidence).verdict.reason is RejectReason.TARGET_LENGTH
    with pytest.raises(ValueError, match="2 task ids but 1 target lengths"):
        replace(EVIDENCE, target_lengths=(0,))


def test_a_group_beyond_the_slot_is_caught_before_it_is_looked_up() -> None:
    judgement = mallory_with_a_group_beyond_the_slot().judged(never_grade)
    assert judgement.verdict.reason is RejectReason.ROLLOUT_COUNT


def test_a_logprob_that_is_not_a_number_is_caught_even_if_the_reader_let_it_through() -> None:
    case = Case(
        submission=claim().submission,
        lease=LEASE,
        rollouts=with_row(0, logprobs=np.array([-1.5, np.nan, -1.5], np.float32)),
        rules=RULES,
        evidence=EVIDENCE,
        current_version=9,
    )
    assert [reason for reason, check in CHECKS if check(case) is not None] == [RejectReason.LOGPROB_RANGE]


def test_a_logprob_a_rounding_error_above_zero_is_honest() -> None:
    honest = claim(with_row(0, logprobs=np.array([-1.5, 6e-8, -1.5], np.float32)))
    assert honest.judged().verdict.outcome is Outcome.ACCEPTED


def test_a_policy_that_always_says_the_same_may_be_certain() -> None:
    rows = []
    for row in HONEST:
        first = HONEST[2 * row.group]
        certain = np.zeros(len(first.completion_tokens), np.float32)
        rows.append(replace(first, sample=row.sample, logprobs=certain))
    assert claim(rows).judged().verdict.outcome is Outcome.ACCEPTED


def test_an_unlikely_token_within_reach_of_the_noise_is_honest() -> None:
    honest = claim(with_row(0, logprobs=np.array([-1.5, -36.0, -1.5], np.float32)))
    assert honest.judged().verdict.outcome is Outcome.ACCEPTED


def test_the_oldest_version_of_the_window_is_accepted_and_one_newer_than_ours_too() -> None:
    for current_version in (7 + POOL.max_staleness, 6):
        assert replace(claim(), current_version=current_version).judged().verdict.outcome is Outcome.ACCEPTED


def test_checks_stand_in_the_order_of_their_reasons_and_none_is_missing() -> None:
    order = list(RejectReason)
    table = [reason for reason, _ in CHECKS]
    assert table == sorted(table, key=order.index)
    tested = {reason for _, reason in READABLE} | {reason for _, reason, _ in UNREADABLE}
    elsewhere = {
        RejectReason.VALIDATOR_FAULT,
        RejectReason.TRANSCRIPT,  # test_judge_episodes.py, and the rest in tests/adversarial/test_sampling.py
        RejectReason.ACTIVATIONS,
        RejectReason.DRAWS,
        RejectReason.LOGPROBS,
        RejectReason.REGENERATION,
    }
    assert tested == set(RejectReason) - elsewhere


def test_a_graders_crash_passes_through_and_becomes_an_unjudged_submission() -> None:
    def crash(rollouts: Sequence[Rollout]) -> Sequence[RewardResult]:
        raise ZeroDivisionError("grader")

    honest = claim()
    with pytest.raises(ZeroDivisionError):
        honest.judged(crash)
    judgement = not_accepted(
        honest.submission,
        RejectReason.VALIDATOR_FAULT,
        "grader crashed",
        pool_digest=RULES.pool_digest,
        validator="validator-1",
        now_ms=5,
    )
    assert judgement.verdict.outcome is Outcome.UNJUDGED
    assert judgement.evidence.detail == "grader crashed"


def test_a_grader_that_skips_a_rollout_is_a_bug_of_ours() -> None:
    with pytest.raises(AssertionError):
        claim().judged(lambda rollouts: grade_by_length(rollouts)[:-1])


def test_long_details_are_cut() -> None:
    judgement = not_accepted(
        claim().submission,
        RejectReason.SCHEMA,
        "x" * 10_000,
        pool_digest=RULES.pool_digest,
        validator="validator-1",
        now_ms=5,
    )
    assert len(judgement.evidence.detail) == 1000


@pytest.mark.parametrize("ids", [{"eos_token_ids": ()}, {"eos_token_ids": (VOCAB,)}, {"reserved_token_ids": (EOS,)}])
def test_rules_whose_token_ids_contradict_each_other_are_refused(ids: dict[str, tuple[int, ...]]) -> None:
    values: dict[str, Any] = {"eos_token_ids": (EOS,), **ids}
    with pytest.raises(ValueError, match="eos ids"):
        JudgeRules(pool=POOL, vocab_size=VOCAB, **values)
