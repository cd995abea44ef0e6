"""DPPO, arXiv 2602.04879: a trust region on probabilities, not on their ratio.

    keep_t = not ( A_t > 0 and p_t - q_t > bound_high  or  A_t < 0 and p_t - q_t < -bound_low )     p = e^pi, q = e^mu
    L_t    = -advantage_scale * A_t * r_t  where kept  +  kl_scale * (pi_t - mu_t)^2  everywhere    r_t = p_t / q_t

A token is dropped once its probability has moved too far in the direction that the advantage pushes. A ratio treats a
move from 0.001 to 0.002 as a doubling, and one from 0.5 to 0.7 as little. The quadratic term: form of arXiv 2602.02276,
bounds and scales of prime-rl.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from farflung.rl.aggregate import aggregate
from farflung.rl.checks import require, require_loss_tokens
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.policy_metrics import policy_metrics
from farflung.rl.ratio import Policies, bounded_exp, select_policies


@dataclass(frozen=True, kw_only=True, slots=True)
class DppoParams:
    bound_low: float = 0.2
    bound_high: float = 0.2
    advantage_scale: float = 1.0
    kl_scale: float = 1e-3

    def __post_init__(self) -> None:
        require(
            0 < self.bound_low <= 1 and 0 < self.bound_high <= 1,
            f"the probability bounds are {self.bound_low} and {self.bound_high}: both must be in (0, 1], usually 0.2",
        )
        require(self.advantage_scale > 0, f"advantage_scale is {self.advantage_scale}: it must be above 0")
        require(self.kl_scale >= 0, f"kl_scale is {self.kl_scale}: it must be >= 0")


def dppo_loss(inputs: LossInputs, params: DppoParams, num_loss_tokens: int) -> LossOutputs:
    """See `rl.grpo.grpo_loss` for arguments and errors."""
    policies = select_policies(inputs)
    moved_N = probability_difference(policies)
    low_N = (moved_N < -params.bound_low) & (policies.advantages_N < 0)
    high_N = (moved_N > params.bound_high) & (policies.advantages_N > 0)
    return masked_ratio_loss(
        inputs,
        policies,
        low_N=low_N,
        high_N=high_N,
        advantage_scale=params.advantage_scale,
        kl_scale=params.kl_scale,
        num_loss_tokens=num_loss_tokens,
    )


def probability_difference(policies: Policies) -> Tensor:
    """[N] p - q of the sampled token, without gradient."""
    return policies.pi_N.detach().exp() - policies.mu_N.exp()


def masked_ratio_loss(
    inputs: LossInputs,
    policies: Policies,
    *,
    low_N: Tensor,
    high_N: Tensor,
    advantage_scale: float,
    kl_scale: float,
    num_loss_tokens: int,
) -> LossOutputs:
    """The loss above for tokens dropped on either side; mean over all tokens of the step."""
    require_loss_tokens(num_loss_tokens)
    log_ratio_N = policies.log_ratio("behaviour")
    ratio_N = bounded_exp(log_ratio_N)
    is_dropped_N = low_N | high_N
    policy_N = torch.where(is_dropped_N, 0, -advantage_scale * policies.advantages_N * ratio_N)
    loss = aggregate(policy_N + kl_scale * log_ratio_N.square(), inputs, "token_mean", num_loss_tokens)
    with torch.no_grad():
        shares = {"is_masked": is_dropped_N, "is_masked_low": low_N, "is_masked_high": high_N}
        metrics = policy_metrics(inputs, loss, ratio_N=ratio_N, raw_weight_N=policies.raw_weight, shares=shares)
    return LossOutputs(loss=loss, metrics=metrics)
