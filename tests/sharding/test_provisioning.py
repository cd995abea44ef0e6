"""The rule of provisioning against an event-by-event walk of chunks through a tree, and its own bounds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.sharding.provisioning import Tree, Work, need, spread_s, staleness

WORK = Work(step_s=60.0, batch_tokens=500_000, useful_share=0.5, judge_s=10.0, max_staleness=4)
TREE = Tree(fan_out=3, depth=2, chunk_bytes=1_000_000, latency_s=0.05)


def walked_s(version_bytes: int, tree: Tree, rate: float) -> float:
    """When the last chunk arrives at the last child of each level: chunk by chunk, child by child."""
    send_s = tree.chunk_bytes / rate
    arrived = [0.0] * math.ceil(version_bytes / tree.chunk_bytes)
    for _ in range(tree.depth):
        is_free_at, next_arrived = 0.0, []
        for chunk_at in arrived:
            starts = max(chunk_at, is_free_at)
            is_free_at = starts + tree.fan_out * send_s
            next_arrived.append(is_free_at + tree.latency_s)
        arrived = next_arrived
    return arrived[-1]


@given(st.integers(1, 200), st.integers(1, 6), st.integers(1, 6), st.floats(1e5, 1e9))
def test_chunks_walked_through_a_tree_take_what_the_formula_says(
    num_chunks: int, fan_out: int, depth: int, rate: float
) -> None:
    tree = Tree(fan_out=fan_out, depth=depth, chunk_bytes=1000, latency_s=0.25)
    assert spread_s(num_chunks * 1000, tree, rate) == pytest.approx(walked_s(num_chunks * 1000, tree, rate))


@given(st.integers(1, 10**9), st.floats(50, 5_000), st.integers(1_000, 100_000))
def test_with_what_is_needed_staleness_holds_and_with_less_of_it_does_not(
    version_bytes: int, tokens_per_s: float, lease_tokens: int
) -> None:
    needed = need(WORK, TREE, version_bytes=version_bytes, lease_tokens=lease_tokens, tokens_per_s=tokens_per_s)
    lease_s = lease_tokens / tokens_per_s
    if not needed.can_be_met:
        assert staleness(TREE.depth * TREE.latency_s, lease_s, WORK) >= WORK.max_staleness
        return
    enough = spread_s(version_bytes, TREE, needed.upload_bytes_per_s * (1 + 1e-9))
    assert staleness(enough * (1 - 1e-9), lease_s, WORK) <= WORK.max_staleness
    too_little = spread_s(version_bytes, TREE, needed.upload_bytes_per_s / 1.01)
    assert staleness(too_little, lease_s, WORK) > WORK.max_staleness


def test_workers_sample_a_batch_per_step() -> None:
    needed = need(WORK, TREE, version_bytes=10**8, lease_tokens=10_000, tokens_per_s=1000.0)
    assert needed.num_workers == 17  # 500,000 / (0.5 * 1000 * 60) = 16.7
    assert needed.spread_s == 4 * 60 - 10 - 10


def test_a_patch_fifty_times_smaller_needs_a_network_about_fifty_times_slower() -> None:
    whole = need(WORK, TREE, version_bytes=5 * 10**9, lease_tokens=10_000, tokens_per_s=1000.0)
    patch = need(WORK, TREE, version_bytes=10**8, lease_tokens=10_000, tokens_per_s=1000.0)
    assert 48 < whole.upload_bytes_per_s / patch.upload_bytes_per_s <= 50
