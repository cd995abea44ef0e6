"""SAPO's policy loss: a soft gate in place of the clip, wider where the advantage is positive.

    L_t = -(4 / tau) * sigmoid(tau * (r_t - 1)) * A_t          tau = tau_positive for A > 0, tau_negative else

At r = 1 its gradient is the policy's (4 / tau * tau / 4 = 1); away from it the gradient fades smoothly to 0, never
abruptly. Defaults as TRL. The swarm algorithm of the same name, which mixes experience, is `rl.mix`.
"""

from dataclasses import dataclass
from typing import get_args

import torch

from farflung.rl.aggregate import Aggregation, aggregate, require_aggregation
from farflung.rl.checks import require, require_loss_tokens, require_name
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.policy_metrics import policy_metrics
from farflung.rl.ratio import Anchor, select_policies


@dataclass(frozen=True, kw_only=True, slots=True)
class SapoParams:
    tau_positive: float = 1.0
    tau_negative: float = 1.05
    anchor: Anchor = "behaviour"
    aggregation: Aggregation = "token_mean"
    max_length_tokens: int | None = None

    def __post_init__(self) -> None:
        require(
            self.tau_positive > 0 and self.tau_negative > 0,
            f"tau is {self.tau_positive} and {self.tau_negative}: both must be above 0, usually 1.0 and 1.05",
        )
        require_name("anchor", self.anchor, get_args(Anchor))
        require_aggregation(self.aggregation, self.max_length_tokens)


def sapo_loss(inputs: LossInputs, params: SapoParams, num_loss_tokens: int) -> LossOutputs:
    """See `rl.grpo.grpo_loss` for arguments and errors."""
    require_loss_tokens(num_loss_tokens)
    policies = select_policies(inputs)
    ratio_N = policies.ratio(params.anchor)
    is_positive_N = policies.advantages_N > 0
    tau_N = torch.where(is_positive_N, params.tau_positive, params.tau_negative).to(ratio_N.dtype)
    gate_N = (tau_N * (ratio_N - 1)).sigmoid()
    loss = aggregate(
        -4 / tau_N * gate_N * policies.advantages_N,
        inputs,
        params.aggregation,
        num_loss_tokens,
        params.max_length_tokens,
    )
    with torch.no_grad():
        # 1 at r = 1: how much of the gradient is left.
        shares = {"sapo/gate_mean": 4 * gate_N * (1 - gate_N)}
        metrics = policy_metrics(inputs, loss, ratio_N=ratio_N, raw_weight_N=policies.raw_weight, shares=shares)
    return LossOutputs(loss=loss, metrics=metrics)
