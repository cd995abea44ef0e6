"""Simulated time with the real ledger and buffer: histories that can be worked out by hand, and lasting rules."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from benchmarks.pool_sim import Costs, History, PoolSim, SimWorker, lognormal
from benchmarks.stragglers import (
    DROP_CASES,
    SCALES,
    SLOTS_PER_BATCH,
    Phases,
    drop_history,
    expected_slowest_s,
    pool_rules,
    predicted_async_s,
    predicted_sync_s,
)

COSTS = Costs(sample_s_per_token=0.01, verify_s_per_token=0.001, train_s=0.5, publish_s=0.25)
PHASES = Phases(sample_s=1.0, verify_s=0.1, train_s=0.5, publish_s=0.25, slot_tokens=100)


def pool(max_staleness: int, num_workers: int = 4, **changes: Any) -> PoolSim:
    workers = changes.pop("workers", [SimWorker(name=f"w{number}") for number in range(num_workers)])
    rules = pool_rules(
        max_staleness=max_staleness,
        max_outstanding_groups=4 if max_staleness == 0 else 24,
        groups_per_slot=1,
        groups_per_batch=4,
        lease_s=changes.pop("lease_s", 1e6),
    )
    costs = changes.pop("costs", COSTS)
    return PoolSim(rules, workers, costs, **{"seed": 0, "slot_tokens": lambda _: 100, "check": True, **changes})


def steps_s(history: History) -> list[float]:
    """Between publications, once the pool has settled."""
    times = history.published_s[10:]
    return [after - before for before, after in pairwise(times)]


def test_the_synchronous_mode_takes_the_sum_of_its_phases() -> None:
    history = pool(0).run(5)
    # 0.25 s of publishing, 1 s of sampling by four, 4 * 0.1 s of verifying in turn, 0.5 s of training.
    assert history.published_s == pytest.approx([2.15 * (version + 1) for version in range(5)])
    assert set(history.lags) == {0}
    assert history.trainer_waited_s == pytest.approx(5 * 1.65)


def test_the_asynchronous_mode_takes_its_slowest_phase() -> None:
    history = pool(4, costs=replace(COSTS, publish_s=0.0)).run(30)
    assert steps_s(history) == pytest.approx([1.0] * 19)


def test_with_workers_to_spare_the_trainer_sets_the_pace() -> None:
    history = pool(4, num_workers=12, num_validators=4).run(30)
    assert steps_s(history) == pytest.approx([0.5] * 19)


@pytest.mark.parametrize("max_staleness", [0, 1, 4])
def test_late_workers_never_break_the_rules(max_staleness: int) -> None:
    workers = [
        SimWorker(name=f"w{number}", slowness=1 + 4 * number, delay_s=lognormal(2.0, 1.5)) for number in range(4)
    ]
    history = pool(max_staleness, workers=workers, seed=7).run(40)
    assert all(0 <= lag <= max_staleness for lag in history.lags)
    uses = Counter(use.slot for batch in history.schedule for use in batch)
    assert set(uses.values()) == {1}
    ends = {fate.slot: fate.end for fate in history.fates}
    assert {slot for slot, end in ends.items() if end == "trained"} == set(uses)
    assert list(history.published_s) == sorted(history.published_s)


def test_the_same_seed_gives_the_same_history() -> None:
    workers = [SimWorker(name=f"w{number}", delay_s=lognormal(1.0, 1.0)) for number in range(4)]
    first, second, other = (pool(4, workers=workers, seed=seed).run(15) for seed in (1, 1, 2))
    assert first == second
    assert first.schedule != other.schedule


def test_work_that_takes_longer_than_the_window_is_lost_and_says_why() -> None:
    workers = [*(SimWorker(name=f"w{number}") for number in range(4)), SimWorker(name="slow", slowness=20)]
    history = pool(2, workers=workers).run(40)
    lost = {fate.node: fate.end for fate in history.fates if fate.end != "trained"}
    assert lost == {"slow": "version_window"}


def test_a_lease_that_runs_out_goes_to_somebody_else() -> None:
    workers = [*(SimWorker(name=f"w{number}") for number in range(4)), SimWorker(name="slow", slowness=20)]
    history = pool(4, workers=workers, lease_s=1.5).run(25)
    assert "slow" not in {fate.node for fate in history.fates if fate.end == "trained"}
    assert all(fate.end in ("trained", "lease_expired", "stale") for fate in history.fates)


def test_delays_have_the_mean_that_is_asked_for() -> None:
    assert expected_slowest_s(PHASES, 0.5, num_slots=1) == pytest.approx(1.5, rel=1e-3)
    assert expected_slowest_s(PHASES, 0.0) == 1.0
    slowest = [expected_slowest_s(PHASES, 0.5, num_slots=count) for count in (1, 2, 8, 32)]
    assert slowest == sorted(slowest)
    # two draws: E[max] = mean * 2 Phi(sigma / sqrt 2), Phi(0.70711) = 0.76025
    assert slowest[1] == pytest.approx(1.0 + 0.5 * 2 * 0.76025, rel=1e-3)


def test_the_formula_by_hand() -> None:
    assert predicted_sync_s(PHASES, 0.0) == pytest.approx(1.0 + SLOTS_PER_BATCH * 0.1 + 0.5 + 0.25)
    assert predicted_async_s(PHASES, 0.0) == 1.0
    assert predicted_async_s(PHASES, 3.0) == 4.0
    speed_ups = [predicted_sync_s(PHASES, scale) / predicted_async_s(PHASES, scale) for scale in SCALES]
    assert min(speed_ups) > 1


def test_longer_slots_cost_slow_workers_more_of_their_work_and_fast_ones_next_to_none() -> None:
    short, long = (drop_history(case, seed=0, num_versions=60) for case in DROP_CASES[1:3])

    def lost(history: History, speed: str) -> float:
        ends = [fate.end != "trained" for fate in history.fates if fate.node.startswith(speed)]
        return sum(ends) / len(ends)

    assert max(lost(short, "1x"), lost(long, "1x")) < 0.01
    assert lost(short, "10x") < 0.2 < lost(long, "10x")
