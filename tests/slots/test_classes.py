"""Leases by capability class: which budgets they may ask for, and that an auditor sees it."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from farflung.slots.audit import lease_problem
from farflung.slots.grants import Grant
from farflung.slots.leases import write_lease
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease, LeaseRequest
from farflung.wire.pool import EnvironmentSpec, PoolSpec

SECRET = b"\x01" * 32
RULES = PoolSpec(
    name="test",
    environment=EnvironmentSpec(name="sort-digits", num_tasks=100, target_lengths=(8, 16, 32)),
    tokenizer_digest=sha256_hex(b"t"),
    model_config_digest=sha256_hex(b"m"),
    group_size=4,
    groups_per_slot=2,
    groups_per_batch=4,
    max_staleness=1,
    max_outstanding_groups=20,
    temperature=1.0,
    max_prompt_tokens=16,
    max_completion_tokens=16,
    lease_s=10.0,
    max_attempts=3,
    max_file_bytes=1 << 20,
    capability_classes={"slow": (8,), "middling": (8, 16)},
)


def lease(slot: int, capability_class: str) -> Lease:
    request = LeaseRequest(
        node="w", policy_version=0, policy_digest=sha256_hex(b"v"), capability_class=capability_class
    )
    return write_lease(RULES, RULES.digest(), SECRET, request, Grant(slot=slot, attempt=0), now_ms=0)


@pytest.mark.parametrize(
    ("capability_class", "budgets"),
    [("slow", (8,)), ("middling", (8, 16)), ("any", (8, 16, 32)), ("unheard-of", (8, 16, 32))],
)
def test_a_class_has_its_budgets_equally_often(capability_class: str, budgets: tuple[int, ...]) -> None:
    lengths = Counter(length for slot in range(30) for length in lease(slot, capability_class).target_lengths)
    assert lengths == dict.fromkeys(budgets, 60 // len(budgets))


def test_a_class_does_not_choose_its_tasks() -> None:
    assert lease(7, "slow").task_indices == lease(7, "any").task_indices


def test_a_lease_with_the_budget_of_another_class_is_named_by_the_auditor() -> None:
    """A friend is spared long work, or a slow machine is starved by it."""
    held = lease(3, "slow")
    assert lease_problem(RULES, SECRET, held, None) is None
    for wrong in (
        replace(held, target_lengths=(32, 32)),
        replace(held, capability_class="any"),
        replace(lease(3, "any"), capability_class="slow"),
    ):
        assert "target_lengths" in (lease_problem(RULES, SECRET, wrong, None) or "")


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ({"slow": ()}, "at least one"),
        ({"slow": (8, 9)}, "at least one of"),
        ({"slow": (16, 8)}, "rising"),
        ({"slow": (8, 8)}, "rising"),
        ({"": (8,)}, "capability_class"),
        ({f"class-{number}": (8,) for number in range(65)}, "at most 64"),
    ],
)
def test_classes_that_cannot_be_are_refused(classes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(RULES, capability_classes=classes)


def test_a_deterministic_pool_has_none() -> None:
    with pytest.raises(ValueError, match="do not depend on who asks"):
        replace(RULES, deterministic_seed=1)
