"""Which capability class a worker asks for."""

from typing import Any

import pytest
from msgspec.structs import replace

from farflung.errors import UserError
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.worker.pace import AUTO, MEMORY, SHARE, Pace

CLASSES = {"slow": (10,), "middling": (10, 30), "fast": (30, 90)}


def rules(**changes: Any) -> PoolSpec:
    spec = PoolSpec(
        name="test",
        environment=EnvironmentSpec(name="sort-digits", num_tasks=100, target_lengths=(10, 30, 90)),
        tokenizer_digest=sha256_hex(b"t"),
        model_config_digest=sha256_hex(b"m"),
        group_size=4,
        groups_per_slot=2,
        groups_per_batch=4,
        max_staleness=1,
        max_outstanding_groups=20,
        temperature=1.0,
        max_prompt_tokens=16,
        max_completion_tokens=100,
        lease_s=40.0,
        max_attempts=3,
        max_file_bytes=1 << 20,
        capability_classes=CLASSES,
    )
    return replace(spec, **changes)


def lease(*target_lengths: int) -> Lease:
    return Lease(
        pool_digest=sha256_hex(b"p"),
        lease_id="0-0",
        slot=0,
        attempt=0,
        node="w",
        policy_version=0,
        policy_digest=sha256_hex(b"v"),
        task_indices=(0,) * len(target_lengths),
        target_lengths=target_lengths,
        draw_seed=sha256_hex(b"d"),
        capability_class="slow",
        issued_at_ms=0,
        expires_at_ms=1,
    )


def chosen(s_per_target: float) -> str:
    pace = Pace(rules(), AUTO)
    pace.observe(lease(10, 10), 20 * s_per_target)
    return pace.capability_class()


def test_a_class_that_was_told_is_kept_whatever_is_measured() -> None:
    pace = Pace(rules(), "fast")
    pace.observe(lease(90, 90), 1e6)
    assert pace.capability_class() == "fast"


def test_auto_begins_with_the_shortest_targets() -> None:
    assert Pace(rules(), AUTO).capability_class() == "slow"


def test_auto_takes_the_longest_targets_that_fit_into_its_share_of_a_lease() -> None:
    fits_s = SHARE * rules().lease_s / rules().groups_per_slot
    assert chosen(fits_s / 60 * 0.99) == "fast"
    assert chosen(fits_s / 60 * 1.01) == "any"  # the mean of 10, 30 and 90 is 43.3
    assert chosen(fits_s / 43 * 1.01) == "middling"
    assert chosen(fits_s / 20 * 1.01) == "slow"
    assert chosen(1e9) == "slow"


def test_auto_follows_a_machine_that_changes() -> None:
    pace = Pace(rules(), AUTO)
    pace.observe(lease(10, 10), 0.02)
    assert pace.capability_class() == "fast"
    pace.observe(lease(10, 10), 1000.0)
    assert pace.capability_class() == "slow"
    for _ in range(60):
        pace.observe(lease(10, 10), 0.02)
    assert pace.capability_class() == "fast"
    assert 0 < MEMORY < 1


def test_slots_without_targets_say_nothing() -> None:
    pace = Pace(rules(), AUTO)
    pace.observe(lease(0, 0), 1.0)
    assert pace.capability_class() == "slow"


def test_auto_in_a_pool_without_budgets_is_any() -> None:
    plain = rules(environment=EnvironmentSpec(name="sort-digits", num_tasks=100), capability_classes={})
    assert Pace(plain, AUTO).capability_class() == "any"


def test_a_class_that_the_pool_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(UserError, match="any, auto, fast, middling, slow"):
        Pace(rules(), "slwo")
    assert Pace(rules(capability_classes={}), "slwo").capability_class() == "slwo"
