from typing import get_args

import pytest
import torch
from torch import Tensor

from farflung.rl.aggregate import Aggregation, aggregate, require_aggregation
from farflung.rl.loss import LossInputs
from farflung.rl.sequences import Sequences


def some_inputs(lengths: list[int], mask: Tensor | None = None, num_loss_sequences: int | None = None) -> LossInputs:
    sequence_N = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    zeros_N = torch.zeros(len(sequence_N), dtype=torch.float64)
    return LossInputs(
        trainer_logprobs_N=zeros_N,
        behaviour_logprobs_N=zeros_N,
        advantages_N=zeros_N,
        loss_mask_N=torch.ones_like(zeros_N, dtype=torch.bool) if mask is None else mask,
        sequences=Sequences(
            sequence_N=sequence_N,
            num_sequences=len(lengths),
            num_loss_sequences=num_loss_sequences or len(lengths),
        ),
    )


@pytest.mark.parametrize(
    ("how", "expected"), [("token_mean", 0.2), ("sequence_mean", 0.5), ("sequence_sum", 1.0), ("constant", 0.0625)]
)
def test_the_example_of_two_sequences(how: Aggregation, expected: float) -> None:
    """2 tokens with loss 1, 8 with loss 0; L_max 16."""
    loss_N = torch.tensor([1.0] * 2 + [0.0] * 8, dtype=torch.float64)
    assert aggregate(loss_N, some_inputs([2, 8]), how, 10, 16).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("how", "first", "second"),
    [("token_mean", 0.1, 0.9), ("sequence_mean", 0.5, 0.5), ("sequence_sum", 0.5, 4.5), ("constant", 0.05, 0.45)],
)
def test_sequences_of_1_and_9_tokens_weigh_as_the_name_says(how: Aggregation, first: float, second: float) -> None:
    """Case L1."""
    loss_N = torch.ones(10, dtype=torch.float64, requires_grad=True)
    aggregate(loss_N, some_inputs([1, 9]), how, 10, 10).backward()
    assert loss_N.grad is not None
    assert loss_N.grad[0].item() == pytest.approx(first)
    assert loss_N.grad[1:].sum().item() == pytest.approx(second)


@pytest.mark.parametrize("how", get_args(Aggregation))
def test_masked_tokens_and_empty_sequences_do_not_count(how: Aggregation) -> None:
    full_N = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    padded_N = torch.tensor([1.0, 2.0, torch.nan, torch.nan, 3.0, torch.inf], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([True, True, False, False, True, False])
    full = aggregate(full_N, some_inputs([2, 1]), how, 3, 7)
    padded = aggregate(padded_N, some_inputs([3, 1, 2], mask, num_loss_sequences=2), how, 3, 7)
    assert padded.item() == full.item()
    padded.backward()
    assert padded_N.grad is not None
    assert (padded_N.grad[~mask] == 0).all()


def test_sequence_names_need_sequences_and_the_constant_its_length() -> None:
    inputs = some_inputs([2])
    with pytest.raises(ValueError, match="'constant': give the longest completion"):
        aggregate(torch.ones(2), inputs, "constant", 2)
    with pytest.raises(ValueError, match="needs the document index"):
        aggregate(torch.ones(1), some_inputs_without_sequences(), "sequence_mean", 1)


def some_inputs_without_sequences() -> LossInputs:
    one = torch.ones(1)
    return LossInputs(trainer_logprobs_N=one, behaviour_logprobs_N=one, advantages_N=one, loss_mask_N=one.bool())


def test_unknown_names_fail_with_the_list() -> None:
    """Case L14."""
    with pytest.raises(ValueError, match="must be one of token_mean, sequence_mean, sequence_sum, constant"):
        require_aggregation("bnpo", None)
