"""VESPO, arXiv 2602.10693: a soft, asymmetric weight on the sequence's ratio in place of a clip.

    w_i   = exp( sum_t m_it (pi_it - anchor_it) )                of the whole sequence, not its mean
    phi_i = w^k * exp(lambda * (1 - w))                          no gradient; 1 on-policy
    L_it  = -phi_i * A_it * pi_it

k and lambda for A >= 0 and for A < 0: k fades sequences that have become unlikely, lambda those that have become
likely. For a sequence of log-ratios [0.1, -0.2, 0.3]: w = 1.2214, phi = 0.7679 (A >= 0) and 1.1702 (A < 0). The value
means nothing; its gradient is the policy's, weighted.
"""

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from farflung.rl.aggregate import Aggregation, aggregate, require_aggregation
from farflung.rl.checks import require, require_loss_tokens, require_name
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.policy_metrics import policy_metrics
from farflung.rl.ratio import MAX_LOG_RATIO, Anchor, select_policies

MIN_LOG_WEIGHT = -18.42
"""About log 1e-8, as the authors' code: less is no weight at all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VespoParams:
    """Defaults of the paper."""

    k_positive: float = 2.0
    lambda_positive: float = 3.0
    k_negative: float = 3.0
    lambda_negative: float = 2.0
    anchor: Anchor = "behaviour"
    aggregation: Aggregation = "token_mean"
    max_length_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("k_positive", "lambda_positive", "k_negative", "lambda_negative"):
            require(getattr(self, name) > 0, f"{name} is {getattr(self, name)}: it must be above 0")
        require_name("anchor", self.anchor, get_args(Anchor))
        require_aggregation(self.aggregation, self.max_length_tokens)


def vespo_loss(inputs: LossInputs, params: VespoParams, num_loss_tokens: int) -> LossOutputs:
    """See `rl.grpo.grpo_loss` for arguments and errors; needs sequences."""
    require_loss_tokens(num_loss_tokens)
    policies = select_policies(inputs)
    sequences = inputs.required_sequences
    log_ratio_N = policies.log_ratio(params.anchor).detach()
    log_weight_S = sequences.sum(log_ratio_N.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO), policies.mask_N)
    log_weight_N = sequences.spread(log_weight_S.clamp(MIN_LOG_WEIGHT, MAX_LOG_RATIO))
    phi_N = _phi(log_weight_N, policies.advantages_N >= 0, params)
    loss_N = -phi_N * policies.advantages_N * policies.pi_N
    loss = aggregate(loss_N, inputs, params.aggregation, num_loss_tokens, params.max_length_tokens)
    with torch.no_grad():
        metrics = policy_metrics(
            inputs,
            loss,
            ratio_N=log_weight_N.exp(),
            raw_weight_N=policies.raw_weight,
            shares={"vespo/phi_mean": phi_N},
        )
    return LossOutputs(loss=loss, metrics=metrics)


def _phi(log_weight_N: Tensor, is_positive_N: Tensor, params: VespoParams) -> Tensor:
    """[N] w^k exp(lambda (1 - w)), in logarithms: w alone would overflow where phi is 0."""
    k_N = torch.where(is_positive_N, params.k_positive, params.k_negative).to(log_weight_N.dtype)
    lambda_N = torch.where(is_positive_N, params.lambda_positive, params.lambda_negative).to(log_weight_N.dtype)
    return (k_N * log_weight_N + lambda_N * (1 - log_weight_N.exp())).exp()
