import math
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from farflung.rl.guards import (
    GuardMode,
    GuardParams,
    Judge,
    Level,
    guard_weight,
    guarded,
    importance_weight,
    judged_value,
    mask_above,
    mask_outside,
    truncate,
)
from farflung.rl.loss import LossInputs
from farflung.rl.metrics import NUM_TOKENS, reduce_metrics
from farflung.rl.sequences import Sequences

INDEX = Sequences(sequence_N=torch.tensor([0, 0, 0, 1]), num_sequences=2, num_loss_sequences=2)
LOG_WEIGHT = torch.tensor([0.1, -0.2, 0.3, math.log(4)], dtype=torch.float64)
ALL = torch.ones(4, dtype=torch.bool)


def some_inputs(log_weight: Tensor = LOG_WEIGHT, mask: Tensor = ALL) -> LossInputs:
    zeros_N = torch.zeros_like(log_weight)
    return LossInputs(
        trainer_logprobs_N=zeros_N,
        prox_logprobs_N=log_weight,
        behaviour_logprobs_N=zeros_N,
        advantages_N=torch.tensor([1.0, -1.0, 2.0, -2.0], dtype=torch.float64),
        loss_mask_N=mask,
        sequences=INDEX,
    )


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("token", [math.exp(0.1), math.exp(-0.2), math.exp(0.3), 4.0]),
        ("sequence", [1.2214, 1.2214, 1.2214, 4.0]),
        ("geometric", [1.0689, 1.0689, 1.0689, 4.0]),
    ],
)
def test_weights_at_three_levels_by_hand(level: Level, expected: list[float]) -> None:
    """Log-ratios [0.1, -0.2, 0.3]: by sum 1.2214, by mean 1.0689."""
    assert importance_weight(LOG_WEIGHT, ALL, level, INDEX).tolist() == pytest.approx(expected, abs=5e-5)


def test_noise_on_a_long_sequence_moves_the_product_and_not_the_mean() -> None:
    """Case L19: +-0.01 on 4,000 tokens."""
    sign = torch.where(torch.rand(4000, generator=torch.Generator().manual_seed(0)) < 0.5, -1.0, 1.0)
    noise, mask = 0.01 * sign.double(), torch.ones(4000, dtype=torch.bool)
    one = Sequences(sequence_N=torch.zeros(4000, dtype=torch.int64), num_sequences=1, num_loss_sequences=1)
    assert importance_weight(noise, mask, "geometric", one)[0].item() == pytest.approx(1, abs=1e-3)
    assert importance_weight(noise, mask, "sequence", one)[0].item() == pytest.approx(noise.sum().exp().item())
    assert abs(noise.sum().item()) > 0.1


def test_three_bounds_by_hand() -> None:
    weights = torch.tensor([0.2, 1.0, 4.0])
    assert truncate(weights, 2.0).tolist() == pytest.approx([0.2, 1.0, 2.0])
    assert mask_above(weights, 2.0).tolist() == pytest.approx([0.2, 1.0, 0.0])
    assert mask_outside(weights, 0.5, 2.0).tolist() == pytest.approx([0.0, 1.0, 0.0])
    judged = torch.tensor([1.0, 9.0, 1.0])
    assert mask_above(weights, 2.0, judged).tolist() == pytest.approx([0.2, 0.0, 4.0])
    assert mask_outside(weights, 0.5, 2.0, judged).tolist() == pytest.approx([0.2, 0.0, 4.0])


def test_a_sequence_can_be_kept_by_its_geometric_mean_with_weights_per_token() -> None:
    params = GuardParams(mode="band", level="token", judged_at="geometric", low=0.9, high=1.1)
    kept = [math.exp(0.1), math.exp(-0.2), math.exp(0.3), 0.0]
    assert guard_weight(LOG_WEIGHT, ALL, params, INDEX).tolist() == pytest.approx(kept)


@pytest.mark.parametrize(("mode", "level"), list(product(get_args(GuardMode), get_args(Level))))
def test_every_documented_guard_runs_and_leaves_on_policy_tokens_alone(mode: GuardMode, level: Level) -> None:
    """Case L14."""
    params = GuardParams(mode=mode, level=level)
    weights = guard_weight(torch.zeros(4), ALL, params, INDEX)
    assert weights.tolist() == [1, 1, 1, 1]
    inputs = some_inputs(torch.zeros(4, dtype=torch.float64))
    assert guarded(inputs, params, weighs=True)[0].advantages_N.tolist() == inputs.advantages_N.tolist()


def test_weights_stand_in_the_advantages() -> None:
    outputs, _ = guarded(some_inputs(), GuardParams(mode="truncate", high=2.0), weighs=True)
    weights = [math.exp(0.1), math.exp(-0.2), math.exp(0.3), 2.0]
    assert outputs.advantages_N.tolist() == pytest.approx([weights[0], -weights[1], 2 * weights[2], -4.0])


def test_where_the_ratio_carries_the_correction_a_guard_keeps_or_drops() -> None:
    outputs, _ = guarded(some_inputs(), GuardParams(mode="mask", high=2.0), weighs=False)
    assert outputs.advantages_N.tolist() == [1, -1, 2, 0]
    with pytest.raises(ValueError, match="a weight would count it twice"):
        guarded(some_inputs(), GuardParams(mode="truncate"), weighs=False)


def test_raw_weights_are_measured_before_they_are_bounded() -> None:
    """Case L13: one raw weight of 10, the rest 1, cap 2."""
    inputs = some_inputs(torch.tensor([math.log(10), 0.0, 0.0, 0.0], dtype=torch.float64))
    outputs, parts = guarded(inputs, GuardParams(mode="truncate", high=2.0), weighs=True)
    metrics = reduce_metrics([{NUM_TOKENS: torch.tensor(4), **parts}])
    assert metrics["guard/fraction_high"] == 0.25
    assert metrics["guard/raw_max"] == pytest.approx(10)
    assert metrics["guard/raw_min"] == 1
    assert metrics["guard/weight_mean"] == pytest.approx(5 / 4)
    assert metrics["guard/is_masked"] == metrics["guard/fraction_low"] == 0
    assert outputs.advantages_N[0].item() == pytest.approx(2)


@pytest.mark.parametrize("level", get_args(Level))
@pytest.mark.parametrize("junk", [math.nan, -math.inf])
def test_masked_tokens_move_no_weight(level: Level, junk: float) -> None:
    mask = torch.tensor([True, False, True, True])
    params = GuardParams(mode="band", level=level)
    clean, clean_metrics = guarded(some_inputs(LOG_WEIGHT, mask), params, weighs=True)
    dirty_log_weight = torch.where(mask, LOG_WEIGHT, junk)
    dirty, dirty_metrics = guarded(some_inputs(dirty_log_weight, mask), params, weighs=True)
    assert dirty.advantages_N[mask].tolist() == clean.advantages_N[mask].tolist()
    assert {name: value.item() for name, value in dirty_metrics.items()} == {
        name: value.item() for name, value in clean_metrics.items()
    }


def test_sequence_levels_need_sequences() -> None:
    with pytest.raises(ValueError, match="level is 'geometric' and"):
        guarded(replace(some_inputs(), sequences=None), GuardParams(mode="band", level="geometric"), weighs=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "drop"}, "mode is 'drop': it must be one of off, truncate, mask, band"),
        ({"level": "word"}, "level is 'word': it must be one of token, sequence, geometric"),
        ({"judged_at": "word"}, "judged_at is 'word'"),
        ({"low": 1.5}, r"bounds are \[1\.5, 2\.0\]"),
        ({"high": 0.9}, r"bounds are \[0\.5, 0\.9\]"),
        ({"mode": "mask", "judged_at": "k3", "high": 0.0}, "largest mean k3 must be above 0 nats"),
        ({"mode": "band", "judged_at": "k3"}, "which has no lower bound: use mask"),
        ({"mode": "truncate", "judged_at": "sequence"}, "judged at its own level"),
    ],
)
def test_parameters_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GuardParams(**change)


def test_opsm_drops_unlikely_sequences_of_negative_advantage_alone() -> None:
    """Mean log-ratios -0.2 and -0.3 with d = 0.25, each with both signs of the advantage."""
    log_ratio_N = torch.tensor([-0.1, -0.3, -0.3, -0.1, -0.3, -0.3], dtype=torch.float64)
    inputs = LossInputs(
        trainer_logprobs_N=log_ratio_N,
        behaviour_logprobs_N=torch.zeros_like(log_ratio_N),
        advantages_N=torch.tensor([-1.0, -1.0, -1.0, 1.0, 1.0, 1.0], dtype=torch.float64),
        loss_mask_N=torch.ones(6, dtype=torch.bool),
        sequences=Sequences(sequence_N=torch.tensor([0, 0, 1, 2, 2, 3]), num_sequences=4, num_loss_sequences=4),
    )
    opsm = GuardParams(mode="band", level="geometric", low=math.exp(-0.25), high=math.inf, only_negative=True)
    kept, metrics = guarded(inputs, opsm, weighs=False)
    assert kept.advantages_N.tolist() == [-1, -1, 0, 1, 1, 1]
    assert reduce_metrics([metrics | {NUM_TOKENS: torch.tensor(6)}])["guard/is_masked"] == pytest.approx(1 / 6)


def test_a_sequence_is_rejected_by_its_mean_k3_whatever_the_sign_of_its_drift() -> None:
    """K3 rejection: exp(l) - 1 - l over [0.1, -0.2, 0.3] is 0.02125 on average, of log 4 it is 1.614."""
    means = [sum(math.exp(x) - 1 - x for x in (0.1, -0.2, 0.3)) / 3] * 3 + [3 - math.log(4)]
    assert judged_value(LOG_WEIGHT, ALL, "k3", INDEX).tolist() == pytest.approx(means)
    params = GuardParams(mode="mask", judged_at="k3", high=0.05)
    outputs, metrics = guarded(some_inputs(), params, weighs=False)
    assert outputs.advantages_N.tolist() == [1, -1, 2, 0]
    assert metrics["max/guard/raw_max"].item() == pytest.approx(means[-1])
    assert metrics["sum/guard/fraction_high"].item() == 1
    mirrored, _ = guarded(some_inputs(-LOG_WEIGHT), params, weighs=False)
    assert mirrored.advantages_N.tolist() == [1, -1, 2, 0]


def test_k3_rejection_needs_sequences() -> None:
    with pytest.raises(ValueError, match="judged at 'k3' and"):
        guarded(replace(some_inputs(), sequences=None), GuardParams(mode="mask", judged_at="k3"), weighs=True)


@pytest.mark.parametrize("judge", get_args(Judge))
def test_on_policy_tokens_pass_every_judge(judge: Judge) -> None:
    """Case L14."""
    inputs = some_inputs(torch.zeros(4, dtype=torch.float64))
    kept, _ = guarded(inputs, GuardParams(mode="mask", judged_at=judge), weighs=True)
    assert kept.advantages_N.tolist() == inputs.advantages_N.tolist()
