"""Values and gradients of every objective, worked out by hand; `test_grpo.py` has the default's."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from farflung.rl.cispo import CispoParams, cispo_loss
from farflung.rl.dapo import DapoParams, dapo_loss
from farflung.rl.dppo import DppoParams, dppo_loss
from farflung.rl.dr_grpo import DrGrpoParams, dr_grpo_loss
from farflung.rl.expectation import group_log_expectation
from farflung.rl.gepo import GepoParams, gepo_loss
from farflung.rl.gspo import GspoParams, gspo_loss
from farflung.rl.ipo import IpoParams, ipo_loss
from farflung.rl.loss import LossInputs
from farflung.rl.metrics import reduce_metrics
from farflung.rl.objectives import ObjectiveFunction
from farflung.rl.ppo import PpoParams, ppo_loss
from farflung.rl.reinforce import ReinforceParams, reinforce_loss
from farflung.rl.sapo import SapoParams, sapo_loss
from farflung.rl.sequences import Sequences
from farflung.rl.vespo import VespoParams, vespo_loss


def vector(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def some_inputs(
    log_ratios: Sequence[float],
    advantages: Sequence[float],
    *,
    mu: Sequence[float] | None = None,
    prox: Sequence[float] | None = None,
    lengths: Sequence[int] | None = None,
    log_expectation: Sequence[float] | None = None,
) -> LossInputs:
    """pi = mu + log-ratio; all tokens in one sequence unless `lengths` say otherwise."""
    lengths = lengths or [len(log_ratios)]
    mu_N = vector(mu or [-1.0] * len(log_ratios))
    return LossInputs(
        trainer_logprobs_N=(mu_N + vector(log_ratios)).requires_grad_(),
        behaviour_logprobs_N=mu_N,
        prox_logprobs_N=None if prox is None else vector(prox),
        advantages_N=vector(advantages),
        loss_mask_N=torch.ones(len(log_ratios), dtype=torch.bool),
        group_log_expectation_N=None if log_expectation is None else vector(log_expectation),
        sequences=Sequences(
            sequence_N=torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)),
            num_sequences=len(lengths),
            num_loss_sequences=len(lengths),
        ),
    )


def loss_and_gradient(function: ObjectiveFunction, inputs: LossInputs, params: Any) -> tuple[float, list[float]]:
    loss = function(inputs, params, len(inputs.loss_mask_N)).loss
    (gradient,) = torch.autograd.grad(loss, inputs.trainer_logprobs_N)
    return loss.item(), gradient.tolist()


def metrics_of(function: ObjectiveFunction, inputs: LossInputs, params: Any) -> dict[str, float]:
    return reduce_metrics([function(inputs, params, len(inputs.loss_mask_N)).metrics])


RATIOS = [0.5, 0.9, 1.0, 1.2, 1.5, 3.0, 6.0]
LOGS = [math.log(ratio) for ratio in RATIOS]
POSITIVE = [0.5, 0.9, 1.0, 1.2, 1.28, 1.28, 1.28]
PLAIN_NEGATIVE = [-0.8, -0.9, -1.0, -1.2, -1.5, -3.0, -6.0]
TWO_SIDED_NEGATIVE = [-0.8, -0.9, -1.0, -1.2, -1.5, -3.0, -4.0]


# -- ppo, dapo, dr_grpo -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "params", "negative"),
    [
        (ppo_loss, PpoParams(clip_high=0.28), PLAIN_NEGATIVE),
        (ppo_loss, PpoParams(clip_high=0.28, delta=4.0), TWO_SIDED_NEGATIVE),
        (dapo_loss, DapoParams(), PLAIN_NEGATIVE),
    ],
)
def test_the_published_table_of_the_clip(function: ObjectiveFunction, params: Any, negative: list[float]) -> None:
    for advantage, expected in ((1.0, POSITIVE), (-1.0, negative)):
        loss, gradient = loss_and_gradient(function, some_inputs(LOGS, [advantage] * 7), params)
        assert -7 * loss == pytest.approx(sum(expected))
        moves = [value == pytest.approx(ratio * advantage) for value, ratio in zip(expected, RATIOS, strict=True)]
        by_hand = [-ratio * advantage / 7 if free else 0 for ratio, free in zip(RATIOS, moves, strict=True)]
        assert gradient == pytest.approx(by_hand)


def test_ppo_clips_at_its_own_bound_and_counts_what_it_clips() -> None:
    inputs = some_inputs([math.log(1.5), math.log(0.5), 0.0, 0.0], [1.0, -1.0, 1.0, 1.0])
    loss, gradient = loss_and_gradient(ppo_loss, inputs, PpoParams())
    assert loss == pytest.approx(-(1.2 - 0.8 + 1 + 1) / 4)
    assert gradient == pytest.approx([0, 0, -0.25, -0.25])
    metrics = metrics_of(ppo_loss, inputs, PpoParams())
    assert metrics["clip_ratio/high_mean"] == metrics["clip_ratio/low_mean"] == 0.25
    assert metrics["clip_ratio/region_mean"] == 0.5
    assert metrics["ratio/mean"] == pytest.approx(1.0)
    assert metrics["ratio/max"] == pytest.approx(1.5)


def test_the_decoupled_anchor_is_the_start_of_the_version() -> None:
    inputs = some_inputs([math.log(6), 0.0], [1.0, 1.0], prox=[-1.0 + math.log(5), -1.0])
    assert loss_and_gradient(ppo_loss, inputs, PpoParams(anchor="decoupled"))[1] == pytest.approx([-0.6, -0.5])
    metrics = metrics_of(ppo_loss, inputs, PpoParams(anchor="decoupled"))
    assert metrics["sampling/importance_sampling_ratio/max"] == pytest.approx(5)


@pytest.mark.parametrize(
    ("function", "params"),
    [
        (dapo_loss, DapoParams(anchor="decoupled")),
        (dr_grpo_loss, DrGrpoParams(max_length_tokens=1, anchor="decoupled")),
        (cispo_loss, CispoParams(anchor="decoupled")),
        (gspo_loss, GspoParams(anchor="decoupled", clip_high=0.5)),
        (sapo_loss, SapoParams(anchor="decoupled")),
        (vespo_loss, VespoParams(anchor="decoupled")),
    ],
)
def test_every_decoupled_anchor_is_the_start_of_the_version(function: ObjectiveFunction, params: Any) -> None:
    """One token: pi / mu = 6, pi / prox = 1.2."""
    inputs = some_inputs([math.log(6)], [1.0], prox=[-1.0 + math.log(5)])
    assert metrics_of(function, inputs, params)["ratio/mean"] == pytest.approx(1.2)


def test_dr_grpo_divides_by_a_constant() -> None:
    """Sequences of 1 and 3 tokens: neither their number of tokens nor their lengths matter, L_max 10 does."""
    inputs = some_inputs([0.0] * 4, [1.0, -1.0, -1.0, -1.0], lengths=[1, 3])
    loss, gradient = loss_and_gradient(dr_grpo_loss, inputs, DrGrpoParams(max_length_tokens=10))
    assert loss == pytest.approx(2 / 20)
    assert gradient == pytest.approx([-1 / 20, 1 / 20, 1 / 20, 1 / 20])


# -- gspo ---------------------------------------------------------------------------------------------------------


def test_gspo_s_ratio_is_the_geometric_mean() -> None:
    """Log-ratios [0.1, -0.2, 0.3]: mean 1.0689, where the sum would give 1.2214."""
    wide = GspoParams(clip_low=0.5, clip_high=0.5)
    s = math.exp(0.2 / 3)
    assert s == pytest.approx(1.0689, abs=5e-5)
    inputs = some_inputs([0.1, -0.2, 0.3, 0.0], [1.0, 1.0, 1.0, -2.0], lengths=[3, 1])
    loss, gradient = loss_and_gradient(gspo_loss, inputs, wide)
    assert loss == pytest.approx(-(s - 2) / 2)
    assert gradient == pytest.approx([-s / 6, -s / 6, -s / 6, 1.0])


def test_gspo_clips_whole_sequences_tightly() -> None:
    inputs = some_inputs([0.1, -0.2, 0.3, 3e-4, 3e-4], [1.0, 1.0, 1.0, 1.0, 1.0], lengths=[3, 2])
    loss, gradient = loss_and_gradient(gspo_loss, inputs, GspoParams())
    assert loss == pytest.approx(-(1.0004 + math.exp(3e-4)) / 2)
    assert gradient == pytest.approx([0, 0, 0, -math.exp(3e-4) / 4, -math.exp(3e-4) / 4])
    assert metrics_of(gspo_loss, inputs, GspoParams())["clip_ratio/high_mean"] == pytest.approx(0.6)


log_ratio = st.floats(-0.2, 0.2)


@given(st.lists(log_ratio, min_size=1, max_size=4), st.lists(log_ratio, min_size=1, max_size=4))
def test_gspo_s_gradient_is_that_of_the_sequence_ratio(first: list[float], second: list[float]) -> None:
    """Autograd through the definition, with the sequence's advantage: no clip acts."""
    lengths = [len(first), len(second)]
    inputs = some_inputs(first + second, [1.5] * lengths[0] + [-0.5] * lengths[1], lengths=lengths)
    _, gradient = loss_and_gradient(gspo_loss, inputs, GspoParams(clip_low=0.9, clip_high=9.0))
    pi, mu = inputs.trainer_logprobs_N, inputs.behaviour_logprobs_N
    ratios = [part.mean().exp() for part in (pi - mu).split(lengths)]
    (by_definition,) = torch.autograd.grad(-(1.5 * ratios[0] - 0.5 * ratios[1]) / 2, pi)
    assert gradient == pytest.approx(by_definition.tolist())


# -- gepo ---------------------------------------------------------------------------------------------------------


def test_the_expectation_of_a_group_by_hand() -> None:
    """q = 0.5 and 0.25: E = (0.25 + 0.0625) / 0.75."""
    assert math.exp(group_log_expectation([math.log(0.5), math.log(0.25)])) == pytest.approx(0.3125 / 0.75)
    assert math.exp(group_log_expectation([-3.0, -3.0, -3.0])) == pytest.approx(math.exp(-3))
    assert group_log_expectation([-5000.0, -5000.0]) == pytest.approx(-5000)
    with pytest.raises(ValueError, match="no rollouts"):
        group_log_expectation([])


def two_rollouts(p: Sequence[float]) -> LossInputs:
    """q = 0.5 (two tokens, 1 and 0.25) and 0.25 (one token) under the sampler; p under the trainer, E = 5/12."""
    mu = [0.0, math.log(0.25), math.log(0.25)]
    pi = [math.log(p[0]), math.log(p[0]), math.log(p[1])]
    return some_inputs(
        [new - old for new, old in zip(pi, mu, strict=True)],
        [1.0, 1.0, -1.0],
        mu=mu,
        lengths=[2, 1],
        log_expectation=[math.log(5 / 12)] * 3,
    )


def test_gepo_weighs_sequences_against_their_group() -> None:
    # w = 0.45 / (5/12) = 1.08 and 0.4 / (5/12) = 0.96
    loss, gradient = loss_and_gradient(gepo_loss, two_rollouts([0.45, 0.4]), GepoParams())
    assert loss == pytest.approx(-(1.08 - 0.96) / 2)
    assert gradient == pytest.approx([-1.08 / 4, -1.08 / 4, 0.96 / 2])


def test_gepo_clips_its_weight() -> None:
    # w = 1.44 with A > 0, 0.48 with A < 0
    loss, gradient = loss_and_gradient(gepo_loss, two_rollouts([0.6, 0.2]), GepoParams())
    assert loss == pytest.approx(-(1.2 - 0.8) / 2)
    assert gradient == [0, 0, 0]


def test_gepo_plus_uses_the_rollout_s_own_probability_while_policies_are_close() -> None:
    """The second rollout's p / q = 1.04 is within reach (k3 = 7.5e-4); the first's tokens moved far."""
    inputs = two_rollouts([0.45, 0.26])
    loss, _ = loss_and_gradient(gepo_loss, inputs, GepoParams(near_kl=0.002))
    assert loss == pytest.approx(-(1.08 - 1.04) / 2)
    assert metrics_of(gepo_loss, inputs, GepoParams(near_kl=0.002))["gepo/near_mean"] == pytest.approx(1 / 3)
    assert loss_and_gradient(gepo_loss, inputs, GepoParams())[0] == pytest.approx(-(1.08 - 0.8) / 2)


def test_gepo_plus_measures_the_divergence_of_the_sampler_from_the_trainer() -> None:
    """k3 of log-ratios +0.3 and -0.3: e^0.3 - 1.3 = 0.0499 and e^-0.3 - 0.7 = 0.0408."""
    inputs = some_inputs([0.3, -0.3, -0.3], [1.0] * 3, lengths=[1, 2], log_expectation=[-1.0] * 3)
    assert metrics_of(gepo_loss, inputs, GepoParams(near_kl=0.045))["gepo/near_mean"] == pytest.approx(2 / 3)


def test_gepo_without_the_expectation_is_refused() -> None:
    with pytest.raises(ValueError, match="group_log_expectation_N is None"):
        gepo_loss(some_inputs([0.0], [1.0]), GepoParams(), 1)


# -- cispo, reinforce ---------------------------------------------------------------------------------------------


def test_cispo_bounds_the_weight_and_every_token_keeps_its_gradient() -> None:
    inputs = some_inputs([math.log(6), math.log(0.1), 0.0], [1.0, -1.0, 2.0], mu=[-2.0, -0.5, -1.0])
    loss, gradient = loss_and_gradient(cispo_loss, inputs, CispoParams())
    assert gradient == pytest.approx([-5 / 3, 0.1 / 3, -2 / 3])
    pi = inputs.trainer_logprobs_N.tolist()
    assert loss == pytest.approx(-(5 * pi[0] - 0.1 * pi[1] + 2 * pi[2]) / 3)
    _, gradient = loss_and_gradient(cispo_loss, inputs, CispoParams(ratio_low=0.5, ratio_high=1.5))
    assert gradient == pytest.approx([-1.5 / 3, 0.5 / 3, -2 / 3])
    assert metrics_of(cispo_loss, inputs, CispoParams())["clip_ratio/high_mean"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("params", "weights"),
    [
        (ReinforceParams(weight_mode="off"), [1, 1, 1]),
        (ReinforceParams(), [2, 0.25, 1]),
        (ReinforceParams(weight_mode="mask"), [0, 0.25, 1]),
        (ReinforceParams(weight_mode="band"), [0, 0, 1]),
        (ReinforceParams(weight_level="sequence"), [0.75, 0.75, 1]),
        (ReinforceParams(weight_level="geometric"), [0.75**0.5, 0.75**0.5, 1]),
        (ReinforceParams(weight_level="sequence", weight_mode="band", weight_low=0.8), [0, 0, 1]),
    ],
)
def test_reinforce_s_weight_is_bounded_and_carries_no_gradient(params: ReinforceParams, weights: list[float]) -> None:
    inputs = some_inputs([math.log(3), math.log(0.25), 0.0], [1.0, 2.0, -1.0], lengths=[2, 1])
    loss, gradient = loss_and_gradient(reinforce_loss, inputs, params)
    by_hand = [-weight * advantage / 3 for weight, advantage in zip(weights, [1.0, 2.0, -1.0], strict=True)]
    assert gradient == pytest.approx(by_hand)
    pi = inputs.trainer_logprobs_N.tolist()
    assert loss == pytest.approx(sum(part * logprob for part, logprob in zip(by_hand, pi, strict=True)))


# -- sapo ---------------------------------------------------------------------------------------------------------


def test_sapo_s_gate_by_hand() -> None:
    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    inputs = some_inputs([math.log(2), math.log(0.5), 0.0], [1.0, -1.0, 1.0])
    loss, gradient = loss_and_gradient(sapo_loss, inputs, SapoParams())
    up, down, middle = sigmoid(1.0), sigmoid(-0.525), 0.5
    assert loss == pytest.approx(-(4 * up - 4 / 1.05 * down + 4 * middle) / 3)
    slopes = [4 * gate * (1 - gate) for gate in (up, down, middle)]
    assert gradient == pytest.approx([-2 * slopes[0] / 3, 0.5 * slopes[1] / 3, -1 / 3])
    assert metrics_of(sapo_loss, inputs, SapoParams())["sapo/gate_mean"] == pytest.approx(sum(slopes) / 3)


# -- vespo --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("advantage", "phi"), [(2.0, 0.7678136), (-2.0, 1.1702232)])
def test_vespo_weighs_by_the_product_of_the_sequence_by_hand(advantage: float, phi: float) -> None:
    """w = exp(0.2) for the first three tokens: w^2 e^(3 (1 - w)) or w^3 e^(2 (1 - w)); 1 for the on-policy one."""
    inputs = some_inputs([0.1, -0.2, 0.3, 0.0], [advantage] * 4, lengths=[3, 1])
    loss, gradient = loss_and_gradient(vespo_loss, inputs, VespoParams())
    assert gradient == pytest.approx([-phi * advantage / 4] * 3 + [-advantage / 4])
    pi_N = inputs.trainer_logprobs_N.tolist()
    assert loss == pytest.approx(-advantage * (phi * sum(pi_N[:3]) + pi_N[3]) / 4)
    assert metrics_of(vespo_loss, inputs, VespoParams())["vespo/phi_mean"] == pytest.approx((3 * phi + 1) / 4)


def test_vespo_forgets_a_sequence_that_is_far_away_on_either_side() -> None:
    for log_ratio in (-15.0, 15.0, 400.0):
        gradient = loss_and_gradient(vespo_loss, some_inputs([log_ratio] * 2, [1.0] * 2), VespoParams())[1]
        assert gradient == pytest.approx([0, 0], abs=1e-12)


# -- dppo, ipo ----------------------------------------------------------------------------------------------------

MOVES = [(0.5, 0.8), (0.5, 0.65), (0.5, 0.2), (0.5, 0.35)]
"""(q, p): up and down, by 0.3 and 0.15."""


def moved_inputs(advantage: float) -> LossInputs:
    logs = [math.log(p / q) for q, p in MOVES]
    return some_inputs(logs, [advantage] * 4, mu=[math.log(q) for q, _ in MOVES])


@pytest.mark.parametrize(
    ("function", "params", "advantage", "kept"),
    [
        (dppo_loss, DppoParams(), 1.0, [0, 1, 1, 1]),
        (dppo_loss, DppoParams(), -1.0, [1, 1, 0, 1]),
        (dppo_loss, DppoParams(bound_high=0.4), 1.0, [1, 1, 1, 1]),
        (dppo_loss, DppoParams(advantage_scale=2.0, kl_scale=0.0), 1.0, [0, 1, 1, 1]),
        (ipo_loss, IpoParams(), 1.0, [0, 1, 0, 1]),
        (ipo_loss, IpoParams(), -1.0, [0, 1, 0, 1]),
        (ipo_loss, IpoParams(bound=0.1), -1.0, [0, 0, 0, 0]),
    ],
)
def test_tokens_whose_probability_moved_too_far_are_dropped(
    function: ObjectiveFunction, params: Any, advantage: float, kept: list[int]
) -> None:
    ratios = [p / q for q, p in MOVES]
    policy = [-params.advantage_scale * advantage * ratio * keep for ratio, keep in zip(ratios, kept, strict=True)]
    pull = [params.kl_scale * math.log(ratio) for ratio in ratios]
    loss, gradient = loss_and_gradient(function, moved_inputs(advantage), params)
    logs = [math.log(ratio) for ratio in ratios]
    assert loss == pytest.approx((sum(policy) + sum(k * x for k, x in zip(pull, logs, strict=True))) / 4)
    assert gradient == pytest.approx([(part + 2 * k) / 4 for part, k in zip(policy, pull, strict=True)])
    assert metrics_of(function, moved_inputs(advantage), params)["is_masked"] == kept.count(0) / 4


# -- parameters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params_type", "change", "message"),
    [
        (PpoParams, {"delta": 1.1}, r"delta is 1\.1"),
        (PpoParams, {"clip_low": 1.0}, r"clip_low is 1\.0"),
        (PpoParams, {"anchor": "old"}, "anchor is 'old'"),
        (PpoParams, {"aggregation": "bnpo"}, "aggregation is 'bnpo'"),
        (PpoParams, {"aggregation": "constant"}, "max_length_tokens is None"),
        (DapoParams, {"clip_high": 0.0}, r"clip_high is 0\.0"),
        (DapoParams, {"anchor": "old"}, "anchor is 'old'"),
        (DrGrpoParams, {"max_length_tokens": 0}, "max_length_tokens is 0"),
        (DrGrpoParams, {"max_length_tokens": 4, "anchor": "old"}, "anchor is 'old'"),
        (GspoParams, {"clip_low": 0.0}, r"clip_low is 0\.0"),
        (GspoParams, {"anchor": "old"}, "anchor is 'old'"),
        (GspoParams, {"aggregation": "x"}, "aggregation is 'x'"),
        (GepoParams, {"near_kl": -1.0}, r"near_kl is -1\.0"),
        (GepoParams, {"clip_low": 2.0}, r"clip_low is 2\.0"),
        (CispoParams, {"ratio_high": 1.0}, r"\[0\.0, 1\.0\]"),
        (CispoParams, {"anchor": "old"}, "anchor is 'old'"),
        (SapoParams, {"tau_negative": 0.0}, r"tau is 1\.0 and 0\.0"),
        (SapoParams, {"anchor": "old"}, "anchor is 'old'"),
        (ReinforceParams, {"weight_mode": "drop"}, "mode is 'drop'"),
        (ReinforceParams, {"aggregation": "x"}, "aggregation is 'x'"),
        (DppoParams, {"bound_low": 0.0}, r"bounds are 0\.0 and 0\.2"),
        (DppoParams, {"advantage_scale": 0.0}, "advantage_scale"),
        (DppoParams, {"kl_scale": -1.0}, "kl_scale"),
        (IpoParams, {"bound": 1.1}, r"bound is 1\.1"),
        (IpoParams, {"advantage_scale": 0.0}, "advantage_scale"),
        (IpoParams, {"kl_scale": -1.0}, "kl_scale"),
    ],
)
def test_parameters_out_of_range_are_refused(params_type: Any, change: dict[str, Any], message: str) -> None:
    """Case L14 for the names."""
    with pytest.raises(ValueError, match=message):
        params_type(**change)


def test_what_is_measured_per_sequence_needs_sequences() -> None:
    inputs = replace(some_inputs([0.0], [1.0]), sequences=None)
    with pytest.raises(ValueError, match="needs the document index"):
        gspo_loss(inputs, GspoParams(), 1)
