"""Batches that fill until they have signal, in a running pool: what they cost, and that they never wait for ever."""

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from farflung.errors import UserError
from farflung.rl.shaping import NO_SHAPING
from farflung.telemetry.metrics import read_metrics
from farflung.trainer import service
from farflung.trainer.samples import select, why_left_out
from farflung.trainer.sampling_cost import sampling_metrics
from farflung.trainer.setup import set_up
from running_pool import check_history, coordinator, crew, publications, working
from tiny_pool import SEED, batch_of, pool_spec, sampled_groups, tiny_policy, trainer_config

# A slot is two groups of four rollouts. A batch needs two groups with signal and takes sixteen slots at most.
POOL = pool_spec(groups_per_batch=2, max_outstanding_groups=32, max_staleness=2)
SIGNAL: dict[str, Any] = {"batch_counts": "signal", "max_sampled_per_batch": 16, "window_slots": 1}


def one_group_in(every: int | None) -> Callable[[int, int], float]:
    """Rewards with which one group in `every`, counted over all slots, has signal; None = no group."""
    calls = count()

    def reward(_group: int, sample: int) -> float:
        number = next(calls) // POOL.group_size
        has_signal = every is not None and number % every == 0
        return float(sample % 2) if has_signal else 0.0

    return reward


async def trained(folder: Path, rewards: Callable[[int, int], float], **config: Any) -> list[dict[str, Any]]:
    """Training rows of a whole run, whose history has been checked."""
    async with coordinator(folder, POOL) as url, crew(url, POOL) as workers:
        workers.rewards = rewards
        async with working(workers):
            settings = trainer_config(**(SIGNAL | config))
            stop = asyncio.Event()
            await asyncio.wait_for(service.run(settings, url=url, run_folder=folder, seed=SEED, stop=stop), 60)
    check_history(publications(folder))
    return [row for row in read_metrics(folder / "metrics.jsonl") if row["kind"] == "train"]


async def test_with_signal_in_one_group_of_ten_every_batch_has_as_many_as_it_needs(tmp_path: Path) -> None:
    rows = await trained(tmp_path, one_group_in(10), max_versions=3)
    assert [row["sampling/groups_used"] for row in rows] == [2.0, 2.0, 2.0]
    assert sum(row["sampling/groups_sampled"] for row in rows) >= 42
    for row in rows:
        assert row["sampling/cost_ratio"] == row["sampling/groups_sampled"] / 2
        assert 0 < row["sampling/tokens_without_signal"] < row["completions/num_tokens"]
        assert row["staleness/max"] <= POOL.max_staleness


async def test_without_any_signal_the_run_goes_on_with_empty_steps_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        rows = await trained(tmp_path, one_group_in(None), max_versions=2)
    assert [row["sampling/groups_sampled"] for row in rows] == [32.0, 32.0]
    assert [row["sampling/groups_used"] for row in rows] == [0.0, 0.0]
    assert "version 1 has the weights of the one before: none of its 32 groups had signal" in caplog.messages
    assert len({publication.manifest.policy_digest for publication in publications(tmp_path)}) == 1


async def test_all_groups_count_unless_something_else_is_said(tmp_path: Path) -> None:
    rows = await trained(tmp_path, one_group_in(10), batch_counts="all", max_versions=2)
    assert [row["sampling/groups_sampled"] for row in rows] == [2.0, 2.0]


async def test_a_bound_beyond_what_the_pool_lets_be_out_is_lowered(tmp_path: Path) -> None:
    """A trainer with a config of its own: it must not wait for slots that are never leased."""
    rows = await trained(tmp_path, one_group_in(None), max_sampled_per_batch=1000, max_versions=1)
    assert [row["sampling/groups_sampled"] for row in rows] == [32.0]


@pytest.mark.parametrize(
    ("rules", "slots"),
    [
        ({"max_staleness": 8, "max_outstanding_groups": 32}, 4),
        ({"max_staleness": 2, "max_outstanding_groups": 32}, 3),
        ({"max_staleness": 8, "max_outstanding_groups": 5}, 2),
        ({"max_staleness": 0, "max_outstanding_groups": 2}, 1),
    ],
)
def test_unless_set_the_bound_is_four_batches_or_what_may_be_out(rules: dict[str, int], slots: int) -> None:
    """A batch is one slot here."""
    setup = set_up(trainer_config(batch_counts="signal"), pool_spec(groups_per_batch=2, **rules), SEED, None)
    assert setup.buffer.params.max_slots_per_batch == slots


def test_a_deterministic_pool_refuses_to_fill_batches() -> None:
    with pytest.raises(UserError, match=r'batch_counts is "signal" with pool\.deterministic'):
        set_up(trainer_config(**SIGNAL), pool_spec(deterministic_seed=1), SEED, None)


def test_a_group_counts_exactly_if_it_is_learned_from() -> None:
    groups = sampled_groups(tiny_policy(), pool_spec())
    flat = type(groups[0])(
        slot=0, group=1, task_id="0", rollouts=groups[1].rollouts, rewards=(1.0,) * 4, correct=(1.0,) * 4
    )
    batch = batch_of((groups[0], flat))
    selection = select(batch, judged_on="correct")
    reasons = [why_left_out(group, judged_on="correct", shaping=NO_SHAPING) for group in batch.groups]
    assert [reason is None for reason in reasons] == [True, False]
    assert [group.group for group in selection.groups] == [0]
    assert sampling_metrics(batch, selection) == {
        "sampling/groups_sampled": 2.0,
        "sampling/groups_used": 1.0,
        "sampling/cost_ratio": 2.0,
        "sampling/tokens_without_signal": float(flat.num_completion_tokens),
    }
