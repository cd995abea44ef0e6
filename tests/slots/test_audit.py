"""The auditor: every way in which a coordinator can favour somebody is named, and an honest history is clean."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from farflung.slots import events
from farflung.slots.audit import COURSE, LEASE, SECRET, Audit, audit
from farflung.slots.events import Event
from farflung.slots.grants import Grant
from farflung.slots.leases import write_lease
from farflung.slots.seeds import commit_secret
from farflung.wire.canonical import sha256_hex
from farflung.wire.curriculum import CurriculumPlan, StratumPlan
from farflung.wire.epoch import EpochNotice
from farflung.wire.lease import Lease, LeaseRequest
from farflung.wire.pool import EnvironmentSpec, PoolSpec

SECRETS = (b"\x01" * 32, b"\x02" * 32, b"\x03" * 32)
FIRST_SLOTS = (0, 2, 4)
RULES = PoolSpec(
    name="test",
    environment=EnvironmentSpec(name="sort-digits", num_tasks=100, target_lengths=(0, 8)),
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
)


def lease(slot: int, node: str, attempt: int = 0, **changes: Any) -> Lease:
    number = max(index for index, first in enumerate(FIRST_SLOTS) if first <= slot)
    request = LeaseRequest(node=node, policy_version=0, policy_digest=sha256_hex(b"policy"))
    grant = Grant(slot=slot, attempt=attempt)
    made = write_lease(
        RULES, RULES.digest(), SECRETS[number], request, grant, now_ms=slot, first_slot=FIRST_SLOTS[number]
    )
    return replace(made, **changes)


def notices(num_revealed: int = 2) -> list[EpochNotice]:
    ends = (*FIRST_SLOTS[1:], None)
    return [
        EpochNotice(
            pool_digest=RULES.digest(),
            number=number,
            first_slot=first,
            end_slot=end,
            commitment=commit_secret(SECRETS[number]),
            opened_at_ms=0,
            secret=SECRETS[number].hex() if number < num_revealed else "",
        )
        for number, (first, end) in enumerate(zip(FIRST_SLOTS, ends, strict=True))
    ]


def history(*leases: Lease) -> list[Event]:
    published = events.VersionPublished(policy_version=0, policy_digest=sha256_hex(b"policy"))
    return [published, *(events.LeaseGranted(lease=each) for each in leases)]


def honest() -> list[Lease]:
    return [lease(slot, f"w{slot}") for slot in range(5)]


def found(course: Sequence[Event], epochs: Sequence[EpochNotice] | None = None, **rest: Any) -> Audit:
    plans: dict[str, CurriculumPlan] = rest.pop("plans", {})
    of_version: dict[int, str] = rest.pop("plan_of_version", {})
    return audit(RULES, notices() if epochs is None else epochs, list(enumerate(course)), plans, of_version)


def test_an_honest_history_is_clean_and_sealed_epochs_are_counted() -> None:
    result = found(history(*honest()))
    assert (result.num_leases_checked, result.num_leases_sealed, result.deviations) == (4, 1, ())


def other_task(held: Lease) -> Lease:
    first, *rest = held.task_indices
    return replace(held, task_indices=((first + 1) % 100, *rest))


@pytest.mark.parametrize(
    ("cheat", "words"),
    [
        (other_task, "task_indices"),
        (lambda held: replace(held, target_lengths=tuple(8 - each for each in held.target_lengths)), "target_lengths"),
        (lambda held: replace(held, draw_seed="ab" * 32), "draw_seed"),
        (lambda held: replace(held, draw_seed=lease(held.slot, "friend").draw_seed), "draw_seed"),
        (lambda held: replace(held, draw_seed=lease(held.slot, held.node, attempt=1).draw_seed), "draw_seed"),
        (lambda held: replace(held, expires_at_ms=held.expires_at_ms + 1), "expires_at_ms"),
        (lambda held: replace(held, curriculum_digest="d" * 64), "curriculum_digest"),
        (lambda held: replace(held, pool_digest="e" * 64), "pool_digest"),
    ],
)
def test_w9_w11_a_lease_that_does_not_follow_from_the_secret_is_named(
    cheat: Callable[[Lease], Lease], words: str
) -> None:
    """Cherry-picked tasks, ground or borrowed draws, longer time."""
    leases = honest()
    leases[3] = cheat(leases[3])
    (deviation,) = found(history(*leases)).deviations
    assert deviation.rule == LEASE
    assert "lease 3-0" in deviation.where
    assert deviation.detail.startswith(words)


def test_a_secret_that_was_not_the_promised_one_is_named() -> None:
    epochs = notices()
    epochs[1] = replace(epochs[1], secret="07" * 32)
    result = found(history(*honest()), epochs)
    assert [each.rule for each in result.deviations] == [SECRET, LEASE, LEASE]
    assert result.deviations[0].where == "epoch 1"


def test_w33_a_slot_that_is_given_to_the_same_node_twice_at_once_is_named() -> None:
    """One open lease per node."""
    (deviation,) = found(history(lease(0, "w0"), lease(1, "w0"))).deviations
    assert deviation.rule == COURSE
    assert deviation.where == "event 2"


def test_another_attempt_without_the_first_being_lost_is_named() -> None:
    (deviation,) = found(history(lease(0, "w0"), lease(0, "w1", attempt=1))).deviations
    assert deviation.rule == COURSE


def test_leases_under_a_plan_need_that_plan() -> None:
    plan = CurriculumPlan(
        pool_digest=RULES.digest(), policy_version=0, explore_permille=500, strata=(StratumPlan(weight=1),)
    )
    request = LeaseRequest(node="w0", policy_version=0, policy_digest=sha256_hex(b"policy"))
    held = write_lease(
        RULES, RULES.digest(), SECRETS[0], request, Grant(slot=0, attempt=0), now_ms=0, plan=plan, first_slot=0
    )
    of_version = {0: plan.digest()}
    shown = found(history(held), plans={plan.digest(): plan}, plan_of_version=of_version)
    assert shown.deviations == ()
    (missing,) = found(history(held), plan_of_version=of_version).deviations
    assert "is not in the ledger" in missing.detail
    (ignored,) = found(history(lease(0, "w0")), plans={plan.digest(): plan}, plan_of_version=of_version).deviations
    assert ignored.detail.startswith(("task_indices", "curriculum_digest"))


def test_within_an_epoch_no_task_comes_twice_before_all_came_once() -> None:
    """Counted from the epoch's first slot, wherever that lies."""
    tasks: list[int] = []
    for slot in range(33, 33 + 50):
        request = LeaseRequest(node="w", policy_version=0, policy_digest=sha256_hex(b"policy"))
        held = write_lease(
            RULES, RULES.digest(), SECRETS[0], request, Grant(slot=slot, attempt=0), now_ms=0, first_slot=33
        )
        tasks += held.task_indices
    assert sorted(tasks) == list(range(100))
