from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from farflung.rl.batch import FlatBatch, count_loss_sequences, count_loss_tokens, flatten
from farflung.rl.grpo import GrpoParams, grpo_loss
from farflung.rl.loss import LossInputs
from farflung.rl.packing import split_micro_batches
from farflung.rl.types import TrainingSample

VOCAB = 11


def a_sample(
    prompt: int, completion: int, *, advantage: float = 1.0, sample: int = 0, masked: tuple[int, ...] = ()
) -> TrainingSample:
    random = np.random.default_rng([prompt, completion, sample])
    mask = np.ones(completion, dtype=np.bool_)
    mask[list(masked)] = False
    return TrainingSample(
        tokens=random.integers(0, VOCAB, prompt + completion, dtype=np.int32),
        num_prompt_tokens=prompt,
        behaviour_logprobs=random.normal(-2.0, 0.3, completion).astype(np.float32),
        advantages=np.full(completion, advantage, dtype=np.float32),
        loss_mask=mask,
        policy_version=0,
        slot=0,
        group=0,
        sample=sample,
    )


class Bigram(nn.Module):
    """Predicts each token from the one before: documents cannot see each other, so packing is exact."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(VOCAB, 8, dtype=torch.float64)
        self.head = nn.Linear(8, VOCAB, dtype=torch.float64)

    def forward(self, batch: FlatBatch) -> Tensor:
        """[M] logprobs of the completion tokens."""
        hidden_MD = self.embed(batch.tokens_N)[batch.rows_M]
        logprobs_MV = self.head(hidden_MD).log_softmax(-1)
        picked: Tensor = logprobs_MV.gather(1, batch.targets_M[:, None])[:, 0]
        return picked


def backward(model: Bigram, samples: list[TrainingSample], num_loss_tokens: int) -> float:
    batch = flatten(samples)
    inputs = LossInputs(
        trainer_logprobs_N=model(batch),
        behaviour_logprobs_N=batch.behaviour_logprobs_M,
        advantages_N=batch.advantages_M,
        loss_mask_N=batch.loss_mask_M,
    )
    loss = grpo_loss(inputs, GrpoParams(), num_loss_tokens).loss
    loss.backward()
    return loss.item()


def accumulate(model: Bigram, parts: list[list[TrainingSample]]) -> tuple[float, list[Tensor]]:
    """Loss and gradients of one optimizer step over its micro-batches."""
    num_loss_tokens = sum(count_loss_tokens(part) for part in parts)
    loss = sum(backward(model, part, num_loss_tokens) for part in parts)
    return loss, [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def documents(batch: FlatBatch) -> list[list[int]]:
    """Where in `tokens_N` each token of each document is."""
    starts = np.cumsum([0, *batch.lengths[:-1]])
    return [
        [*range(prefix, prefix + num_shared), *range(start, start + length)]
        for start, length, prefix, num_shared in zip(
            starts, batch.lengths, batch.prefix_starts, batch.prefix_lengths, strict=True
        )
    ]


def test_two_documents_by_hand() -> None:
    first, second = a_sample(3, 2, advantage=0.5), a_sample(1, 3, advantage=-1.0, masked=(2,))
    batch = flatten([first, second])
    assert batch.tokens_N.tolist() == [*first.tokens[:4], *second.tokens[:3]]
    assert batch.lengths == (4, 3)
    assert batch.rows_M.tolist() == [2, 3, 4, 5, 6]
    stand_in = second.tokens[1]  # for the masked one, which may be an id without a logprob
    assert batch.targets_M.tolist() == [*first.tokens[3:], *second.tokens[1:3], stand_in]
    assert batch.behaviour_logprobs_M.tolist() == [*first.behaviour_logprobs, *second.behaviour_logprobs]
    assert batch.advantages_M.tolist() == [0.5, 0.5, -1.0, -1.0, -1.0]
    assert batch.loss_mask_M.tolist() == [True, True, True, True, False]
    dtypes = {name: getattr(batch, name).dtype for name in ("tokens_N", "rows_M", "targets_M", "advantages_M")}
    assert dtypes == {
        "tokens_N": torch.int64,
        "rows_M": torch.int64,
        "targets_M": torch.int64,
        "advantages_M": torch.float32,
    }


def test_steps_of_different_lengths_keep_their_own_advantage() -> None:
    """Case L7."""
    batch = flatten([a_sample(2, 1, advantage=1.0), a_sample(5, 4, advantage=-2.0)])
    assert batch.advantages_M.tolist() == [1.0] + [-2.0] * 4


shapes = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=24)


@given(shapes)
def test_every_completion_token_is_predicted_from_the_position_before_it(pairs: list[tuple[int, int]]) -> None:
    samples = [a_sample(*pair, sample=number) for number, pair in enumerate(pairs)]
    batch = flatten(samples)
    assert sum(batch.lengths) == len(batch.tokens_N)
    seen = 0
    for where, sample in zip(documents(batch), samples, strict=True):
        assert batch.tokens_N[where].tolist() == sample.tokens[:-1].tolist()
        for position in range(sample.num_prompt_tokens, len(sample.tokens)):
            assert batch.rows_M[seen] == where[position - 1]
            assert batch.targets_M[seen] == sample.tokens[position]
            seen += 1
    assert seen == len(batch.rows_M)


def test_rollouts_of_a_group_share_their_prompt_by_hand() -> None:
    first = a_sample(3, 2)
    others = [
        replace(first, tokens=np.array([*first.tokens[:3], *own], dtype=np.int32), sample=number)
        for number, own in enumerate(([5, 6], [9, 9]), start=1)
    ]
    short = replace(a_sample(3, 1), tokens=np.array([*first.tokens[:3], 7], dtype=np.int32))
    batch = flatten([first, *others, short, a_sample(2, 2)])
    assert batch.lengths == (4, 1, 1, 0, 3)
    assert (batch.prefix_starts, batch.prefix_lengths) == ((0, 0, 0, 0, 6), (0, 3, 3, 3, 0))
    assert batch.tokens_N.tolist() == [*first.tokens[:4], 5, 9, *a_sample(2, 2).tokens[:3]]
    assert batch.rows_M.tolist() == [2, 3, 2, 4, 2, 5, 2, 7, 8]
    assert batch.targets_M.tolist() == [*first.tokens[3:], 5, 6, 9, 9, 7, *a_sample(2, 2).tokens[2:]]


@pytest.mark.parametrize("change", [{"group": 1}, {"slot": 1}, {"num_prompt_tokens": 2}, {"tokens": True}])
def test_only_equal_prompts_of_one_group_are_shared(change: dict[str, Any]) -> None:
    sample = a_sample(3, 3)
    if "tokens" in change:
        change = {"tokens": (sample.tokens + 1) % VOCAB}
    if "num_prompt_tokens" in change:
        change |= {
            "behaviour_logprobs": np.zeros(4, np.float32),
            "advantages": np.zeros(4, np.float32),
            "loss_mask": np.ones(4, np.bool_),
        }
    assert flatten([sample, replace(sample, sample=1)]).prefix_lengths == (0, 3)
    assert flatten([sample, replace(sample, sample=1, **change)]).prefix_lengths == (0, 0)


def test_a_batch_moves_to_a_device_whole() -> None:
    batch = flatten([a_sample(2, 3)]).to("meta")
    names = ("tokens_N", "rows_M", "targets_M", "behaviour_logprobs_M", "advantages_M", "loss_mask_M")
    assert {getattr(batch, name).device.type for name in names} == {"meta"}
    assert batch.lengths == (4,)


def test_an_empty_micro_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        flatten([])


def test_four_micro_batches_equal_one_batch() -> None:
    """Case L3: gradients, and weights after the step."""
    samples = [
        a_sample(2 + n % 3, 1 + n, advantage=(-1) ** n * (n + 1) / 4, sample=n, masked=(0,)) for n in range(1, 9)
    ]
    models = Bigram(), Bigram()
    loss, gradients = accumulate(models[0], [samples])
    split_loss, split_gradients = accumulate(models[1], [samples[at : at + 2] for at in range(0, 8, 2)])
    assert split_loss == pytest.approx(loss, rel=1e-12)
    torch.testing.assert_close(split_gradients, gradients, rtol=1e-12, atol=1e-15)
    for model in models:
        torch.optim.AdamW(model.parameters(), lr=0.1).step()
    weights, split_weights = ([p.detach() for p in model.parameters()] for model in models)
    torch.testing.assert_close(split_weights, weights, rtol=1e-9, atol=1e-9)


@settings(max_examples=40)
@given(shapes, st.integers(17, 60))
def test_the_gradient_does_not_depend_on_the_split(pairs: list[tuple[int, int]], max_tokens: int) -> None:
    samples = [a_sample(*pair, advantage=(-1.0) ** number, sample=number) for number, pair in enumerate(pairs)]
    loss, gradients = accumulate(Bigram(), [samples])
    split_loss, split_gradients = accumulate(Bigram(), split_micro_batches(samples, max_tokens))
    assert split_loss == pytest.approx(loss, rel=1e-9, abs=1e-12)
    torch.testing.assert_close(split_gradients, gradients, rtol=1e-9, atol=1e-12)


def test_loss_tokens_are_counted_under_the_mask() -> None:
    assert count_loss_tokens([a_sample(3, 4), a_sample(3, 4, masked=(0, 1, 3))]) == 5


def test_every_completion_token_knows_its_document() -> None:
    batch = flatten([a_sample(3, 2), a_sample(1, 3, masked=(0, 1, 2))])
    assert batch.sequence_M.tolist() == [0, 0, 1, 1, 1]
    sequences = batch.sequences(num_loss_sequences=5)
    assert (sequences.num_sequences, sequences.num_loss_sequences) == (2, 5)
    assert sequences.sequence_N is batch.sequence_M


def test_documents_without_a_loss_token_are_not_counted() -> None:
    assert count_loss_sequences([a_sample(3, 2), a_sample(1, 3, masked=(0, 1, 2)), a_sample(1, 2, masked=(0,))]) == 2


def test_expectations_of_groups_reach_their_tokens_if_all_samples_have_one() -> None:
    known = replace(a_sample(2, 2), group_log_expectation=-0.5)
    batch = flatten([known, replace(a_sample(1, 1), group_log_expectation=-2.0)])
    assert batch.group_log_expectation_M is not None
    assert batch.group_log_expectation_M.tolist() == [-0.5, -0.5, -2.0]
    assert batch.to("cpu").group_log_expectation_M is not None
    assert flatten([known, a_sample(1, 1)]).group_log_expectation_M is None
