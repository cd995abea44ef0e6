"""What holds for every objective: masks, padding, micro-batches, extremes, and their registry."""

import math
from dataclasses import fields, replace
from itertools import product
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from farflung.rl.aggregate import Aggregation
from farflung.rl.entropy import EntropyParams
from farflung.rl.guards import GuardMode, GuardParams, Level
from farflung.rl.kl import KlParams
from farflung.rl.loss import LossInputs
from farflung.rl.metrics import reduce_metrics
from farflung.rl.objectives import OBJECTIVES, Objective, make_params
from farflung.rl.ratio import Anchor
from farflung.rl.sequences import Sequences

OPTIONS: dict[str, tuple[str, ...]] = {
    "aggregation": get_args(Aggregation),
    "anchor": get_args(Anchor),
    "weight_level": get_args(Level),
    "weight_mode": get_args(GuardMode),
}
SMOOTH = ("grpo", "dr_grpo", "dapo", "ppo", "sapo", "dppo", "ipo")
"""Objectives whose value is what is differentiated; the others hold a weight constant, or spread a sequence's ratio."""


def objective(name: str, **values: Any) -> Objective:
    return Objective(function=OBJECTIVES[name][1], params=make_params(name, values, max_length_tokens=9))


def every_option() -> list[tuple[str, dict[str, str]]]:
    """Every objective with every value of each of its enumerated options."""
    cases: list[tuple[str, dict[str, str]]] = [(name, {}) for name in OBJECTIVES]
    for name, (params_type, _) in OBJECTIVES.items():
        for field in fields(params_type):  # type: ignore[arg-type]
            values = ("mask", "clip") if (name, field.name) == ("grpo", "weight_mode") else OPTIONS.get(field.name, ())
            cases += [(name, {field.name: value}) for value in values]
    return cases


ALL_CASES = every_option()


def some_inputs(lengths: list[int], seed: int = 0, dtype: torch.dtype = torch.float64) -> LossInputs:
    """Random logprobs; a token in five is masked, but none of the first of a sequence."""
    random = torch.Generator().manual_seed(seed)
    num_tokens = sum(lengths)
    sequence_N = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))

    def noise(scale: float) -> Tensor:
        return (torch.randn(num_tokens, generator=random) * scale).to(dtype)

    mu_N = noise(0.5) - 2
    mask_N = torch.rand(num_tokens, generator=random) > 0.2
    mask_N[torch.tensor([0, *lengths[:-1]]).cumsum(0)] = True
    return LossInputs(
        trainer_logprobs_N=(mu_N + noise(0.3)).requires_grad_(),
        prox_logprobs_N=mu_N + noise(0.3),
        behaviour_logprobs_N=mu_N,
        ref_logprobs_N=mu_N + noise(0.3),
        advantages_N=noise(1.0),
        loss_mask_N=mask_N,
        entropy_N=noise(0.1) + 1,
        group_log_expectation_N=torch.full((num_tokens,), -2.0, dtype=dtype),
        sequences=Sequences(sequence_N=sequence_N, num_sequences=len(lengths), num_loss_sequences=len(lengths)),
    )


def part_of(inputs: LossInputs, chosen: list[int]) -> LossInputs:
    """The micro-batch of the chosen sequences, whole; the step's number of sequences stays."""
    sequences = inputs.required_sequences
    rows = torch.cat([(sequences.sequence_N == sequence).nonzero()[:, 0] for sequence in chosen])
    renumbered = torch.cat(
        [torch.full_like((sequences.sequence_N == old).nonzero()[:, 0], new) for new, old in enumerate(chosen)]
    )
    tensors = {field.name: getattr(inputs, field.name)[rows] for field in fields(inputs) if field.name != "sequences"}
    return LossInputs(
        **tensors,
        sequences=replace(sequences, sequence_N=renumbered, num_sequences=len(chosen)),
    )


def with_padding(inputs: LossInputs, junk: float) -> LossInputs:
    """Every sequence one masked position longer, and one more sequence that is all masked; pi stays a leaf."""
    sequences = inputs.required_sequences
    count = sequences.num_sequences
    sequence_N, order = torch.cat([sequences.sequence_N, torch.arange(count + 1)]).sort(stable=True)

    def padded(values_N: Tensor, filling: float) -> Tensor:
        extra = torch.full((count + 1,), filling, dtype=values_N.dtype)
        return torch.cat([values_N.detach(), extra])[order]

    tensors = {
        field.name: padded(getattr(inputs, field.name), junk)
        for field in fields(inputs)
        if field.name not in ("sequences", "loss_mask_N")
    }
    tensors["trainer_logprobs_N"].requires_grad_()
    return LossInputs(
        **tensors,
        loss_mask_N=torch.cat([inputs.loss_mask_N, torch.zeros(count + 1, dtype=torch.bool)])[order],
        sequences=replace(sequences, sequence_N=sequence_N, num_sequences=count + 1),
    )


def loss_gradient_metrics(
    inputs: LossInputs, chosen: Objective, num_loss_tokens: int
) -> tuple[float, list[float], dict[str, Tensor]]:
    outputs = chosen(inputs, num_loss_tokens)
    (gradient,) = torch.autograd.grad(outputs.loss, inputs.trainer_logprobs_N, retain_graph=True)
    return outputs.loss.item(), gradient.tolist(), outputs.metrics


# -- every objective ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "values"), ALL_CASES)
def test_every_documented_option_runs_a_step(name: str, values: dict[str, str]) -> None:
    """Case L14."""
    inputs = some_inputs([3, 4])
    loss, gradient, metrics = loss_gradient_metrics(inputs, objective(name, **values), 7)
    assert math.isfinite(loss)
    assert any(gradient)
    assert all(math.isfinite(value) for value in reduce_metrics([metrics]).values())
    assert not any(value.requires_grad for value in metrics.values())


@pytest.mark.parametrize("junk", [-100.0, math.inf, math.nan])
@pytest.mark.parametrize(("name", "values"), ALL_CASES)
def test_masked_positions_and_padding_change_nothing(name: str, values: dict[str, str], junk: float) -> None:
    inputs, chosen = some_inputs([3, 1, 4]), objective(name, **values)
    dirty = with_padding(inputs, junk)
    loss, gradient, metrics = loss_gradient_metrics(inputs, chosen, 6)
    dirty_loss, dirty_gradient, dirty_metrics = loss_gradient_metrics(dirty, chosen, 6)
    assert dirty_loss == pytest.approx(loss, abs=1e-14)
    learned = [value for value, kept in zip(dirty_gradient, dirty.loss_mask_N, strict=True) if kept]
    assert learned == pytest.approx([value for value, kept in zip(gradient, inputs.loss_mask_N, strict=True) if kept])
    assert all(value == 0 for value, kept in zip(dirty_gradient, dirty.loss_mask_N, strict=True) if not kept)
    assert reduce_metrics([dirty_metrics]) == pytest.approx(reduce_metrics([metrics]))


@given(
    case=st.sampled_from(ALL_CASES),
    lengths=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    cut=st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=150)
def test_how_a_step_is_cut_into_micro_batches_does_not_matter(
    case: tuple[str, dict[str, str]], lengths: list[int], cut: Any
) -> None:
    """Cases L3 and L4: same loss, gradient and metrics, sequences never split."""
    inputs, chosen = some_inputs(lengths, seed=sum(lengths)), objective(case[0], **case[1])
    num_loss_tokens = int(inputs.loss_mask_N.sum())
    order = list(range(len(lengths)))
    cut.shuffle(order)
    where = cut.randint(1, len(order) - 1)
    parts = [chosen(part_of(inputs, half), num_loss_tokens) for half in (order[:where], order[where:])]
    (gradient,) = torch.autograd.grad(parts[0].loss + parts[1].loss, inputs.trainer_logprobs_N)
    loss, whole_gradient, metrics = loss_gradient_metrics(inputs, chosen, num_loss_tokens)
    assert sum(part.loss.item() for part in parts) == pytest.approx(loss, abs=1e-12)
    assert gradient.tolist() == pytest.approx(whole_gradient, abs=1e-12)
    assert reduce_metrics([part.metrics for part in parts]) == pytest.approx(reduce_metrics([metrics]))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_doubling_all_lengths_keeps_the_scale_of_the_gradient(name: str) -> None:
    """Case L2: every sequence repeated to twice its length; Dr.GRPO's constant is meant to double."""
    inputs = replace(some_inputs([2, 3]), loss_mask_N=torch.ones(5, dtype=torch.bool))
    if name == "vespo":  # its weight is the product of the ratios, which length squares: 1 on-policy
        inputs = replace(inputs, behaviour_logprobs_N=inputs.trainer_logprobs_N.detach())
    sequences = inputs.required_sequences
    tensors = {
        field.name: getattr(inputs, field.name).detach().repeat(2)
        for field in fields(inputs)
        if field.name != "sequences"
    }
    tensors["trainer_logprobs_N"].requires_grad_()
    twice = LossInputs(**tensors, sequences=replace(sequences, sequence_N=sequences.sequence_N.repeat(2)))
    _, once_gradient, _ = loss_gradient_metrics(inputs, objective(name), 5)
    _, twice_gradient, _ = loss_gradient_metrics(twice, objective(name), 10)
    folded = [twice_gradient[i] + twice_gradient[i + 5] for i in range(5)]
    scale = 2 if name == "dr_grpo" else 1
    assert folded == pytest.approx([scale * value for value in once_gradient])


@pytest.mark.parametrize("name", SMOOTH)
def test_autograd_agrees_with_finite_differences(name: str) -> None:
    inputs = some_inputs([3, 4], seed=1)

    def loss_of(pi: Tensor) -> Tensor:
        return objective(name)(replace(inputs, trainer_logprobs_N=pi), 7).loss

    assert torch.autograd.gradcheck(loss_of, (inputs.trainer_logprobs_N.detach().requires_grad_(),))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_on_policy_every_objective_has_the_policy_gradient(name: str) -> None:
    """All policies agree: the gradient is -advantage, weighted by the aggregation. GEPO alone compares with a group."""
    inputs = some_inputs([3, 2])
    pi_N = inputs.behaviour_logprobs_N.clone().requires_grad_()
    inputs = replace(
        inputs,
        trainer_logprobs_N=pi_N,
        prox_logprobs_N=None,
        loss_mask_N=torch.ones(5, dtype=torch.bool),
        group_log_expectation_N=inputs.required_sequences.spread(
            inputs.required_sequences.mean(pi_N.detach(), torch.ones(5, dtype=torch.bool))
        ),
    )
    share = {"gspo": [1 / 6] * 3 + [1 / 4] * 2, "gepo": [1 / 6] * 3 + [1 / 4] * 2, "dr_grpo": [1 / 18] * 5}
    shares = share.get(name, [1 / 5] * 5)
    _, gradient, metrics = loss_gradient_metrics(inputs, objective(name), 5)
    expected = [-part * advantage for part, advantage in zip(shares, inputs.advantages_N.tolist(), strict=True)]
    assert gradient == pytest.approx(expected)
    assert reduce_metrics([metrics])["ratio/mean"] == pytest.approx(1)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_only_the_trainer_s_logprobs_carry_a_gradient(name: str) -> None:
    inputs = some_inputs([3, 4])
    others = ("behaviour_logprobs_N", "prox_logprobs_N", "advantages_N", "group_log_expectation_N", "entropy_N")
    leaves = {other: getattr(inputs, other).clone().requires_grad_() for other in others}
    objective(name)(replace(inputs, **leaves), 7).loss.backward()
    assert all(leaf.grad is None for leaf in leaves.values())


@pytest.mark.parametrize(("name", "values"), ALL_CASES)
def test_extreme_logprobs_stay_finite_in_float32(name: str, values: dict[str, str]) -> None:
    logprobs_N = torch.tensor([-1e4, 0.0, -500.0, -1e-8])
    inputs = replace(
        some_inputs([2, 2], dtype=torch.float32),
        trainer_logprobs_N=logprobs_N.clone().requires_grad_(),
        prox_logprobs_N=logprobs_N.roll(1),
        behaviour_logprobs_N=logprobs_N.roll(2),
    )
    loss, gradient, metrics = loss_gradient_metrics(inputs, objective(name, **values), 4)
    assert math.isfinite(loss)
    assert all(math.isfinite(value) for value in gradient)
    assert all(math.isfinite(value) for value in reduce_metrics([metrics]).values())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_step_without_loss_tokens_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="num_loss_tokens is 0"):
        objective(name)(some_inputs([2]), 0)


# -- guards and regularisers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "mode", "level"), list(product(OBJECTIVES, ("mask", "band"), get_args(Level))))
def test_a_guarded_sequence_teaches_nothing_and_still_counts(name: str, mode: GuardMode, level: Level) -> None:
    """The second sequence's weights are far off; DPPO's and IPO's pull to the sampler is no part of the advantage."""
    inputs = some_inputs([3, 2])
    prox_N = torch.where(inputs.required_sequences.sequence_N == 1, 5.0, 0.0) + inputs.behaviour_logprobs_N
    inputs = replace(inputs, prox_logprobs_N=prox_N, loss_mask_N=torch.ones(5, dtype=torch.bool))
    off = {"kl_scale": 0.0} if name in ("dppo", "ipo") else {}
    free = objective(name, **off)
    guarded = replace(free, guard=GuardParams(mode=mode, level=level))
    _, gradient, metrics = loss_gradient_metrics(inputs, guarded, 5)
    _, free_gradient, _ = loss_gradient_metrics(inputs, free, 5)
    assert gradient[:3] == pytest.approx(free_gradient[:3])
    assert gradient[3:] == [0, 0]
    assert reduce_metrics([metrics])["guard/is_masked"] == pytest.approx(0.4)


def test_terms_add_to_the_loss_and_their_metrics_to_the_metrics() -> None:
    inputs = some_inputs([3, 4])
    plain, bonus, pull = objective("ppo"), EntropyParams(coefficient=0.1), KlParams(coefficient=0.2)
    base, _, base_metrics = loss_gradient_metrics(inputs, plain, 7)
    loss, _, metrics = loss_gradient_metrics(inputs, replace(plain, entropy=bonus, kl=pull), 7)
    entropy, _, _ = loss_gradient_metrics(inputs, replace(plain, entropy=bonus), 7)
    kl, _, _ = loss_gradient_metrics(inputs, replace(plain, kl=pull), 7)
    assert loss - base == pytest.approx((entropy - base) + (kl - base))
    assert entropy != base != kl
    assert metrics.keys() - base_metrics.keys() == {"sum/kl"}
    assert metrics["sum/policy_loss"] == base_metrics["sum/policy_loss"]


# -- registry -----------------------------------------------------------------------------------------------------


def test_an_unknown_objective_fails_with_the_list() -> None:
    """Case L14."""
    with pytest.raises(ValueError, match="objective is 'trpo': it must be one of grpo, dr_grpo, dapo, ppo, gspo"):
        make_params("trpo", {}, max_length_tokens=1)


def test_an_unknown_parameter_fails_with_the_list() -> None:
    with pytest.raises(ValueError, match="'dapo' has no parameter 'delta': it has clip_low, clip_high, anchor"):
        make_params("dapo", {"delta": 4.0}, max_length_tokens=1)


def test_a_value_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(ValueError, match="wrong type"):
        make_params("ppo", {"clip_low": "much"}, max_length_tokens=1)


def test_the_length_limit_is_filled_in_unless_given() -> None:
    assert make_params("dr_grpo", {}, max_length_tokens=7).max_length_tokens == 7
    assert make_params("dr_grpo", {"max_length_tokens": 5}, max_length_tokens=7).max_length_tokens == 5
