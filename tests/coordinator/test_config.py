"""Rules of pools that cannot work, refused with value, rule and fix."""

from typing import Any

import pytest
from pydantic import ValidationError

from farflung.coordinator.config import CoordinatorConfig, PoolConfig
from farflung.errors import UserError
from farflung.wire.canonical import sha256_hex
from farflung.wire.pool import EnvironmentSpec


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"group_size": 1}, "greater than or equal to 2"),
        ({"temperature": 0.0}, "greater than 0"),
        ({"groups_per_batch": 30}, "groups_per_batch must be a multiple of groups_per_slot"),
        ({"max_outstanding_groups": 31}, "at least groups_per_batch"),
        ({"max_staleness": 0, "max_outstanding_groups": 64}, "would always be stale"),
        ({"max_file_bytes": 10_000}, "raise max_file_bytes"),
        ({"groups_per_slot": 4096, "groups_per_batch": 4096, "max_file_bytes": 1 << 40}, "at most 16384 rollouts"),
        ({"max_stalenes": 1}, "Extra inputs"),
    ],
)
def test_rules_that_cannot_work_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        PoolConfig(**changes)


def test_the_queue_holds_a_batch_for_each_version_of_the_window() -> None:
    assert PoolConfig(max_staleness=4).outstanding_groups == 5 * 32
    assert PoolConfig(max_staleness=0).outstanding_groups == 32
    assert PoolConfig(max_staleness=4, max_outstanding_groups=40).outstanding_groups == 40


def test_the_pool_spec_repeats_the_rules() -> None:
    environment = EnvironmentSpec(name="sort-digits", num_tasks=10)
    config = PoolConfig(name="p", group_size=16, temperature=0.7)
    spec = config.build(
        environment=environment, tokenizer_digest=sha256_hex(b"t"), model_config_digest=sha256_hex(b"m")
    )
    assert (spec.environment, spec.tokenizer_digest) == (environment, sha256_hex(b"t"))
    assert spec.max_outstanding_groups == 160
    assert spec.deterministic_seed is None
    assert spec.checks == config.check_rules
    checks = {"validators_per_submission", "quorum", "forfeit_allowance", "forfeit_share"}
    audits = {"audit_floor", "audit_stake", "audit_first"}
    built = {"max_outstanding_groups", "deterministic", "proof_rules", *checks, *audits}
    same = {name: value for name, value in config.model_dump().items() if name not in built}
    assert {name: getattr(spec, name) for name in same} == same


def test_a_deterministic_pool_draws_from_the_seed_of_the_run() -> None:
    spec = PoolConfig(deterministic=True).build(
        environment=EnvironmentSpec(name="sort-digits", num_tasks=10),
        tokenizer_digest=sha256_hex(b"t"),
        model_config_digest=sha256_hex(b"m"),
        seed=7,
    )
    assert spec.deterministic_seed == 7
    assert spec.is_deterministic


def test_every_setting_is_described() -> None:
    for config in (PoolConfig, CoordinatorConfig):
        for name, field in config.model_fields.items():
            assert field.description, name
            assert "\n" not in field.description


def test_a_node_cannot_be_forgotten_before_it_is_dead() -> None:
    with pytest.raises(ValidationError, match="must not be shorter"):
        CoordinatorConfig(silent_after_s=20, forget_after_s=10)


def test_classes_of_budgets_are_those_of_the_environment() -> None:
    offered = EnvironmentSpec(name="mod-sum", num_tasks=10, target_lengths=(3, 4, 5))
    digests = {"tokenizer_digest": sha256_hex(b"t"), "model_config_digest": sha256_hex(b"m")}
    config = PoolConfig(capability_classes={"slow": (4, 3), "fast": (5,)})
    assert config.build(environment=offered, **digests).capability_classes == {"slow": (3, 4), "fast": (5,)}
    plain = EnvironmentSpec(name="sort-digits", num_tasks=10)
    with pytest.raises(UserError, match="leave the classes out"):
        config.build(environment=plain, **digests)
    for wrong, words in (((3, 7), "target length 7"), ((), "no target length")):
        with pytest.raises(UserError, match=words):
            PoolConfig(capability_classes={"slow": wrong}).build(environment=offered, **digests)
    with pytest.raises(ValidationError, match="leases do not depend on who asks"):
        PoolConfig(capability_classes={"slow": (3,)}, deterministic=True)


@pytest.mark.parametrize(("size", "quorum", "expected"), [(1, None, 1), (2, None, 2), (3, None, 2), (4, 3, 3)])
def test_a_quorum_is_the_least_majority_unless_a_larger_one_is_asked_for(
    size: int, quorum: int | None, expected: int
) -> None:
    rules = PoolConfig(validators_per_submission=size, quorum=quorum).check_rules
    assert (rules.validators_per_submission, rules.quorum) == (size, expected)


def test_audits_follow_from_the_stake_and_have_a_floor_and_open_pools_have_none() -> None:
    def rate(**changes: object) -> float:
        return PoolConfig.model_validate({"trust": "proven", **changes}).check_rules.audit_rate

    assert rate() == 0.01
    assert rate(audit_stake=10.0) == pytest.approx(0.0263, abs=1e-4)
    assert rate(audit_floor=0.2, audit_stake=10.0) == 0.2
    assert rate(trust="open", audit_floor=0.2) == 0.0
