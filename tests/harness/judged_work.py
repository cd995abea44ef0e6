"""The slot of `sampled_work` in a proven pool, handed in honestly or not, and the verdict on it by the true policy."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec.structs import replace as with_fields

from farflung.identity.keys import key_from_bytes
from farflung.validation.case import Case, JudgeRules, SlotEvidence
from farflung.validation.judge import judge
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.proof import DEFAULT_RULES, ProofRules, RolloutFigures
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import write_rollouts
from farflung.wire.submission import Submission
from farflung.wire.verdict import Judgement, RejectReason, RewardResult
from sampled_work import CONFIG, EOS, PARAMS, RESERVED, SEED, figures, honest, requests

NODE = key_from_bytes(b"\x01" * 32).address
POOL = PoolSpec(
    name="proven",
    trust="proven",
    coordinator=key_from_bytes(b"\x0c" * 32).address,
    trainer=key_from_bytes(b"\x07" * 32).address,
    proofs=DEFAULT_RULES,
    environment=EnvironmentSpec(name="any", num_tasks=100),
    tokenizer_digest=sha256_hex(b"tokenizer"),
    model_config_digest=sha256_hex(b"config"),
    group_size=4,
    groups_per_slot=2,
    groups_per_batch=2,
    max_staleness=2,
    max_outstanding_groups=8,
    temperature=PARAMS.temperature,
    max_prompt_tokens=16,
    max_completion_tokens=PARAMS.max_completion_tokens,
    lease_s=60.0,
    max_attempts=3,
    max_file_bytes=1 << 18,
)
PUBLISHED = ProofRules(
    scheme="toploc",
    reject=with_fields(DEFAULT_RULES.reject, activation_chunk=1.0, activation_submission=1.0),
    slash=with_fields(DEFAULT_RULES.slash, activation_chunk=2.0, activation_submission=2.0),
)
"""The published thresholds on commitments in the published format."""
EVIDENCE = SlotEvidence(
    env="any",
    task_ids=("train/0", "train/1"),
    prompt_tokens=tuple(request.prompt_tokens for request in requests()),
    target_lengths=(0, 0),
)
REWARDED = 17
"""The token that earns a reward; the grader looks at tokens alone."""


def lease_of(pool: PoolSpec, **changes: Any) -> Lease:
    values: dict[str, Any] = {
        "pool_digest": pool.digest(),
        "lease_id": "3-0",
        "slot": 3,
        "attempt": 0,
        "node": NODE,
        "policy_version": 0,
        "policy_digest": sha256_hex(b"policy"),
        "task_indices": (0, 1),
        "target_lengths": (0, 0),
        "draw_seed": SEED.hex(),
        "capability_class": "any",
        "issued_at_ms": 0,
        "expires_at_ms": 60_000,
    }
    return Lease(**(values | changes))


@dataclass(frozen=True, kw_only=True)
class HandedIn:
    """A file with the claim about it; consistent with itself unless changed."""

    rows: Sequence[Rollout] = field(default_factory=honest)
    data: bytes | None = None
    """Other bytes than those of the rows; the claim names them."""
    changes: dict[str, Any] = field(default_factory=dict)
    """To the fields of the submission."""
    pool: PoolSpec = POOL
    lease: Lease | None = None

    def judged(self) -> Judgement:
        """By a validator with the true policy, which finds out everything by itself."""
        lease = lease_of(self.pool) if self.lease is None else self.lease
        data = write_rollouts(self.rows, self.pool.digest()) if self.data is None else self.data
        values: dict[str, Any] = {
            **{name: getattr(lease, name) for name in ("pool_digest", "node", "lease_id", "slot", "attempt")},
            "policy_version": lease.policy_version,
            "policy_digest": lease.policy_digest,
            "file_key": "rollouts/0/3-0.parquet",
            "file_digest": sha256_hex(data),
            "file_bytes": len(data),
            "num_rollouts": len(self.rows),
            "num_tokens": sum(len(row.completion_tokens) for row in self.rows),
        }
        return judge(
            Submission(**(values | self.changes)),
            lease,
            data,
            JudgeRules(pool=self.pool, vocab_size=CONFIG.vocab_size, eos_token_ids=EOS, reserved_token_ids=RESERVED),
            EVIDENCE,
            current_version=0,
            validator="validator-1",
            now_ms=1234,
            grade=grades,
            examine=lambda case: examined(case, lease),
        )

    @property
    def reason(self) -> RejectReason | None:
        """None = accepted."""
        return self.judged().verdict.reason


def examined(case: Case, lease: Lease) -> list[RolloutFigures]:
    assert case.rules.pool.proofs is not None
    return figures(case.rollouts, draw_seed=bytes.fromhex(lease.draw_seed), scheme=case.rules.pool.proofs.scheme)


def grades(rollouts: Sequence[Rollout]) -> list[RewardResult]:
    return [
        RewardResult(group=row.group, sample=row.sample, reward=float(REWARDED in row.completion_tokens.tolist()))
        for row in rollouts
    ]


def published(rows: Sequence[Rollout]) -> HandedIn:
    """In a pool that asks for the published format."""
    pool = with_fields(POOL, proofs=PUBLISHED)
    return HandedIn(rows=rows, pool=pool)


def changed(index: int, **changes: Any) -> list[Rollout]:
    """Honest rows, one of them with other fields."""
    return [replace(row, **changes) if number == index else row for number, row in enumerate(honest())]
