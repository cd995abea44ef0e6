from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from farflung.errors import PeerFault
from farflung.trainer.intake import IntakeRules, graded_groups
from farflung.wire.batch import SlotOutcome
from farflung.wire.canonical import sha256_hex
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import write_rollouts
from farflung.wire.submission import Submission
from farflung.wire.verdict import EvidenceBundle, Outcome, RewardResult, SlotState, Verdict
from tiny_pool import description, pool_spec, reserved, sampled_groups, tiny_policy

POOL = pool_spec()
RULES = IntakeRules(pool=POOL, vocab_size=description().config.vocab_size, reserved_token_ids=reserved())
SLOT = 5


def honest_rollouts() -> list[Rollout]:
    return [
        rollout for group in sampled_groups(tiny_policy(), POOL, slot=SLOT, version=2) for rollout in group.rollouts
    ]


def honest_rewards() -> list[RewardResult]:
    return [
        RewardResult(group=group, sample=sample, reward=group + sample / 10, correct=float(sample == 0))
        for group in range(2)
        for sample in range(4)
    ]


def outcome_of(rollouts: Sequence[Rollout], data: bytes, version: int = 2) -> SlotOutcome:
    digest = sha256_hex(b"policy")
    submission = Submission(
        pool_digest=POOL.digest(),
        node="w",
        lease_id="5-0",
        slot=SLOT,
        attempt=0,
        policy_version=version,
        policy_digest=digest,
        file_key="rollouts/5",
        file_digest=sha256_hex(data),
        file_bytes=len(data),
        num_rollouts=len(rollouts),
        num_tokens=sum(len(rollout.completion_tokens) for rollout in rollouts),
    )
    verdict = Verdict(
        pool_digest=POOL.digest(),
        submission_digest=submission.digest(),
        validator="v",
        outcome=Outcome.ACCEPTED,
        evidence_digest=digest,
        judged_at_ms=0,
    )
    return SlotOutcome(
        sequence=0,
        slot=SLOT,
        state=SlotState.ACCEPTED,
        policy_version=version,
        submission=submission,
        verdict=verdict,
    )


def take(
    rollouts: Sequence[Rollout] | None = None, rewards: Sequence[RewardResult] | None = None, version: int = 2
) -> Any:
    rollouts = honest_rollouts() if rollouts is None else rollouts
    data = write_rollouts(rollouts, POOL.digest())
    evidence = EvidenceBundle(
        submission_digest=sha256_hex(b"s"), rewards=tuple(honest_rewards() if rewards is None else rewards)
    )
    return graded_groups(outcome_of(rollouts, data, version), data, evidence, RULES)


def test_every_rollout_gets_the_validators_reward() -> None:
    rollouts = [replace(rollout, claimed_reward=1.0) for rollout in honest_rollouts()]
    first, second = take(rollouts)
    assert (first.slot, first.group, second.slot, second.group) == (SLOT, 0, SLOT, 1)
    assert first.rewards == (0.0, 0.1, 0.2, 0.3)
    assert second.rewards == (1.0, 1.1, 1.2, 1.3)
    assert first.correct == second.correct == (1.0, 0.0, 0.0, 0.0)
    assert first.task_id == rollouts[0].task_id
    assert second.task_id == rollouts[4].task_id
    for kept, sent in zip(first.rollouts + second.rollouts, rollouts, strict=True):
        assert np.array_equal(kept.completion_tokens, sent.completion_tokens)
        assert np.array_equal(kept.logprobs, sent.logprobs)


def test_a_rollout_that_could_not_be_graded_has_no_reward() -> None:
    rewards = honest_rewards()
    rewards[1] = RewardResult(group=0, sample=1, reward=None)
    first, _ = take(rewards=rewards)
    assert first.rewards == (0.0, None, 0.2, 0.3)


def test_other_bytes_than_the_judged_ones_are_refused() -> None:
    rollouts = honest_rollouts()
    data = write_rollouts(rollouts, POOL.digest())
    evidence = EvidenceBundle(submission_digest=sha256_hex(b"s"), rewards=tuple(honest_rewards()))
    with pytest.raises(PeerFault, match="not the file that was judged"):
        graded_groups(outcome_of(rollouts, data), data[:-1] + b"\0", evidence, RULES)


def with_first(**changes: Any) -> Callable[[], list[Rollout]]:
    return lambda: [replace(honest_rollouts()[0], **changes), *honest_rollouts()[1:]]


def ids(*values: int) -> Any:
    return np.array(values, dtype=np.int32)


def completion(*values: int) -> dict[str, Any]:
    return {"completion_tokens": ids(*values), "logprobs": np.zeros(len(values), dtype=np.float32)}


@pytest.mark.parametrize(
    ("mallory", "reason"),
    [
        (lambda: honest_rollouts()[:-1], "rollout_count"),
        (lambda: honest_rollouts()[::-1], "rollout_count"),
        (with_first(sample=1), "rollout_count"),
        (with_first(group=1), "rollout_count"),
        (with_first(policy_version=1), "wrong_lease"),
        (with_first(**completion(3, 64)), "token_range"),
        (with_first(**completion(-1)), "token_range"),
        (with_first(prompt_tokens=ids(64)), "token_range"),
        (with_first(**completion(2)), "token_range"),
        (with_first(**completion(3, 3, 3, 3)), "termination"),
        (with_first(prompt_tokens=ids(*[3] * 9)), "footer_limits"),
    ],
)
def test_what_would_stop_the_learner_is_refused_though_a_validator_accepted_it(
    mallory: Callable[[], list[Rollout]], reason: str
) -> None:
    with pytest.raises(PeerFault) as caught:
        take(mallory())
    assert caught.value.reason == reason


def test_a_slot_of_another_version_than_the_pool_leased_is_refused() -> None:
    with pytest.raises(PeerFault, match="not of 3"):
        take(version=3)


@pytest.mark.parametrize(
    "rewards",
    [
        honest_rewards()[:-1],
        honest_rewards()[::-1],
        [*honest_rewards()[:-1], msgspec.structs.replace(honest_rewards()[-1], sample=2)],
        [],
    ],
)
def test_rewards_that_do_not_name_each_rollout_once_are_refused(rewards: list[RewardResult]) -> None:
    with pytest.raises(PeerFault, match="rewards are not those"):
        take(rewards=rewards)
