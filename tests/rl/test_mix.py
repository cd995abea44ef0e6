from collections import Counter
from typing import Literal

import numpy as np
import pytest

from farflung.rl.mix import Mix, mix_groups
from farflung.rl.types import RolloutGroup
from farflung.wire.rollout import Rollout, StopReason


def a_group(
    slot: int, rewards: tuple[float, ...] = (1.0, 0.0), correct: tuple[float, ...] | None = None
) -> RolloutGroup:
    rollouts = tuple(
        Rollout(
            env="toy",
            task_id=str(slot),
            group=0,
            sample=sample,
            prompt_tokens=np.array([1], dtype=np.int32),
            completion_tokens=np.array([2], dtype=np.int32),
            logprobs=np.array([-1.0], dtype=np.float32),
            stop_reason=StopReason.EOS,
            policy_version=0,
        )
        for sample in range(len(rewards))
    )
    return RolloutGroup(
        slot=slot, group=0, task_id=str(slot), rollouts=rollouts, rewards=rewards, correct=correct or rewards
    )


def slots(mix: Mix) -> tuple[list[int], list[int]]:
    return [group.slot for group in mix.local], [group.slot for group in mix.external]


LOCAL = [a_group(slot) for slot in range(6)]
EXTERNAL = [a_group(slot) for slot in range(100, 106)]


def draw(seed: int, num_local: int = 4, num_external: int = 4) -> Mix:
    return mix_groups(LOCAL, EXTERNAL, num_local=num_local, num_external=num_external, seed=seed)


def test_a_draw_has_the_asked_for_share_without_repeats_and_in_order() -> None:
    local, external = slots(draw(0))
    assert len(set(local)) == len(set(external)) == 4
    assert local == sorted(local)
    assert external == sorted(external)
    assert [group.slot for group in draw(0).groups] == local + external


def test_the_same_seed_draws_the_same_whatever_the_order_of_arrival() -> None:
    again = mix_groups(LOCAL[::-1], EXTERNAL[3:] + EXTERNAL[:3], num_local=4, num_external=4, seed=5)
    assert slots(again) == slots(draw(5))
    assert len({str(slots(draw(seed))) for seed in range(20)}) > 10


def test_every_group_is_drawn_equally_often() -> None:
    counts = Counter(slot for seed in range(600) for part in slots(draw(seed, 2, 2)) for slot in part)
    assert set(counts) == {*range(6), *range(100, 106)}
    assert all(160 <= count <= 240 for count in counts.values())  # 200 expected, 3.5 standard deviations


@pytest.mark.parametrize("rewards", [(1.0, 1.0), (0.0, 0.0), (3.0, 3.0)])
def test_external_groups_without_signal_are_dropped_before_drawing(rewards: tuple[float, ...]) -> None:
    """All solved as well as none solved, however high the total reward."""
    external = [a_group(100, rewards), a_group(101), a_group(102, rewards)]
    for seed in range(10):
        mix = mix_groups(LOCAL, external, num_local=1, num_external=1, seed=seed)
        assert slots(mix)[1] == [101]
        assert mix.num_without_signal == 2


@pytest.mark.parametrize(("judged_on", "kept"), [("correct", []), ("total", [100])])
def test_signal_is_judged_on_what_is_asked_for(judged_on: Literal["correct", "total"], kept: list[int]) -> None:
    """Case L17."""
    shaped = a_group(100, (1.0, 0.9), correct=(1.0, 1.0))
    mix = mix_groups([], [shaped], num_local=0, num_external=1, seed=0, judged_on=judged_on)
    assert slots(mix)[1] == kept


def test_where_there_is_not_enough_all_are_taken() -> None:
    mix = draw(0, num_local=9, num_external=0)
    assert slots(mix) == (list(range(6)), [])
    assert slots(mix_groups([], EXTERNAL, num_local=1, num_external=9, seed=0)) == ([], list(range(100, 106)))


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match="num_external -1"):
        draw(0, num_external=-1)
