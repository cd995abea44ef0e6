import math
from dataclasses import replace

import pytest
import torch

from farflung.rl.metrics import NUM_TOKENS, combine_metrics
from farflung.rl.value import ValueInputs, ValueParams, value_loss


def some_inputs(values: list[float], mask: list[bool] | None = None) -> ValueInputs:
    """Old values 0 and returns 1."""
    values_N = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    zeros_N = torch.zeros(len(values), dtype=torch.float64)
    return ValueInputs(
        values_N=values_N,
        old_values_N=zeros_N,
        returns_N=zeros_N + 1,
        loss_mask_N=torch.tensor(mask or [True] * len(values)),
    )


def test_four_tokens_by_hand() -> None:
    """Clip 0.5: 0.8 is held back to 0.5, which is worse than it claims; -0.8 and 2.0 are worse themselves."""
    inputs = some_inputs([0.2, 0.8, -0.8, 2.0])
    outputs = value_loss(inputs, ValueParams(), 4)
    assert outputs.loss.item() == pytest.approx(0.5 * (0.64 + 0.25 + 3.24 + 1.0) / 4)
    (gradient,) = torch.autograd.grad(outputs.loss, inputs.values_N)
    assert gradient.tolist() == pytest.approx([-0.8 / 4, 0, -1.8 / 4, 1.0 / 4])
    metrics = combine_metrics([outputs.metrics])
    assert metrics["sum/value/clip_ratio_mean"] == 1
    assert metrics["sum/value/mean"] == pytest.approx(2.2)
    assert metrics["sum/value/error_mean"] == pytest.approx(0.64 + 0.04 + 3.24 + 1.0)
    assert metrics[NUM_TOKENS] == 4


def test_autograd_agrees_with_finite_differences() -> None:
    fixed = some_inputs([0.0] * 4)
    values = torch.tensor([0.2, 0.8, -0.8, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: value_loss(replace(fixed, values_N=v), ValueParams(), 4).loss, (values,))


@pytest.mark.parametrize("junk", [math.nan, math.inf])
def test_masked_tokens_reach_neither_loss_nor_gradient(junk: float) -> None:
    inputs = some_inputs([0.2, junk], [True, False])
    outputs = value_loss(inputs, ValueParams(), 1)
    assert outputs.loss.item() == pytest.approx(0.32)
    (gradient,) = torch.autograd.grad(outputs.loss, inputs.values_N)
    assert gradient.tolist() == pytest.approx([-0.8, 0])


def test_parts_add_up() -> None:
    whole = value_loss(some_inputs([0.2, 0.8, -0.8]), ValueParams(), 3).loss.item()
    parts = [value_loss(some_inputs(part), ValueParams(), 3).loss.item() for part in ([0.2], [0.8, -0.8])]
    assert sum(parts) == pytest.approx(whole)


def test_parameters_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="clip is 0"):
        ValueParams(clip=0.0)
    with pytest.raises(ValueError, match="num_loss_tokens is 0"):
        value_loss(some_inputs([0.0]), ValueParams(), 0)
