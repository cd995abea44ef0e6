"""Joining and leaving: every completion runs once, in order, in rows that stay packed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from farflung.engine.base import GroupRequest
from farflung.engine.plan import Plan


def requests(samples: list[int], prompt_lengths: list[int]) -> list[GroupRequest]:
    return [
        GroupRequest(group=group, prompt_tokens=np.zeros(length, dtype=np.int32), num_samples=count)
        for group, (count, length) in enumerate(zip(samples, prompt_lengths, strict=True))
    ]


def test_a_group_larger_than_the_batch_joins_in_parts() -> None:
    plan = Plan(requests([5, 1], [3, 3]), num_rows=2, max_prefill_tokens=100)
    first = plan.join()
    assert first is not None
    assert (first.first, first.count, first.requests, first.request_of_row.tolist()) == (0, 2, range(1), [0, 0])
    assert plan.join() is None
    plan.leave(np.array([True, True]))
    assert plan.join() is not None
    plan.leave(np.array([True, True]))
    last = plan.join()
    assert last is not None
    assert (last.first, last.count, last.requests, last.request_of_row.tolist()) == (4, 2, range(2), [0, 1])
    plan.leave(np.array([True, True]))
    assert plan.join() is None


def test_prompts_of_one_join_fit_one_prefill_and_a_longer_one_goes_alone() -> None:
    plan = Plan(requests([2, 2, 2, 2], [4, 4, 50, 1]), num_rows=8, max_prefill_tokens=10)
    joined = [plan.join() for _ in range(3)]
    assert [join and (join.first, join.count, join.requests) for join in joined] == [
        (0, 4, range(2)),
        (4, 2, range(2, 3)),
        (6, 2, range(3, 4)),
    ]


def test_the_last_live_rows_move_into_the_places_of_those_that_ended() -> None:
    plan = Plan(requests([6], [1]), num_rows=6, max_prefill_tokens=10)
    plan.join()
    leaving = plan.leave(np.array([False, True, False, True, False, False]))
    assert leaving.completions.tolist() == [1, 3]
    assert leaving.rows.tolist() == [1, 3]
    assert (leaving.targets.tolist(), leaving.sources.tolist()) == ([1, 3], [4, 5])
    assert plan.live.tolist() == [0, 4, 2, 5]
    leaving = plan.leave(np.array([True, False, False, True]))
    assert (leaving.targets.tolist(), leaving.sources.tolist()) == ([0], [2])
    assert plan.live.tolist() == [2, 4]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9)), min_size=1, max_size=8),
    st.integers(1, 7),
    st.integers(1, 20),
    st.randoms(use_true_random=False),
)
def test_every_completion_joins_once_and_rows_follow_their_moves(
    groups: list[tuple[int, int]], num_rows: int, max_prefill_tokens: int, random: object
) -> None:
    samples, lengths = [group[0] for group in groups], [group[1] for group in groups]
    plan = Plan(requests(samples, lengths), num_rows=num_rows, max_prefill_tokens=max_prefill_tokens)
    owner = np.repeat(np.arange(len(samples)), samples)
    rows = np.full(num_rows, -1)  # a copy of the batch that only follows the instructions
    joined: list[int] = []
    ended: list[int] = []
    while True:
        while (joining := plan.join()) is not None:
            numbers = np.arange(joining.first, joining.first + joining.count)
            assert owner[numbers].tolist() == [joining.requests[i] for i in joining.request_of_row]
            prompt_tokens = sum(lengths[index] for index in joining.requests)
            assert prompt_tokens <= max_prefill_tokens or len(joining.requests) == 1
            rows[plan.num_live - joining.count : plan.num_live] = numbers
            joined += numbers.tolist()
        if not plan.num_live:
            break
        assert plan.num_live <= num_rows
        assert rows[: plan.num_live].tolist() == plan.live.tolist()
        ends = np.array([random.random() < 0.4 for _ in range(plan.num_live)])  # type: ignore[attr-defined]
        leaving = plan.leave(ends)
        ended += leaving.completions.tolist()
        rows[leaving.targets] = rows[leaving.sources]
    assert joined == list(range(sum(samples)))
    assert sorted(ended) == joined
