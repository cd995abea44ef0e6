"""GEPO, arXiv 2508.17850 (HeteroRL): sequence weights against the group's expectation, for samplers that lag far.

    p_i  = exp(mean_t pi_it)        geometric mean probability under the trainer
    w_i  = p_i / E                  E: expectation of the group under its sampler (`rl.expectation`)
    L_it = -min( w_i * A_it, clip(w_i, 1 - clip_low, 1 + clip_high) * A_it )
    loss = (1/S) sum_i (1/T_i) sum_t m_it L_it

GSPO divides by the rollout's own q_i, whose small values make large weights. GEPO+: where the policies are still close,
mean_t k3(mu, pi) < near_kl, the rollout's own q_i serves instead of E; the authors use 0.002 (their estimator of the
divergence is not stated; k3 is ours).
"""

from dataclasses import dataclass

import torch

from farflung.rl.aggregate import Aggregation, aggregate, require_aggregation
from farflung.rl.checks import require, require_clip, require_loss_tokens
from farflung.rl.clip import clip_masks, clipped_objective
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.policy_metrics import policy_metrics
from farflung.rl.ratio import bounded_exp, select_policies, sequence_ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class GepoParams:
    clip_low: float = 0.2
    clip_high: float = 0.2
    near_kl: float = 0.0
    """Nats per token; 0 = plain GEPO."""
    aggregation: Aggregation = "sequence_mean"
    max_length_tokens: int | None = None

    def __post_init__(self) -> None:
        require_clip(self.clip_low, self.clip_high)
        require(self.near_kl >= 0, f"near_kl is {self.near_kl}: it must be >= 0, usually 0 or 0.002")
        require_aggregation(self.aggregation, self.max_length_tokens)


def gepo_loss(inputs: LossInputs, params: GepoParams, num_loss_tokens: int) -> LossOutputs:
    """See `rl.grpo.grpo_loss` for arguments and errors; needs sequences and `group_log_expectation_N`."""
    require_loss_tokens(num_loss_tokens)
    if inputs.group_log_expectation_N is None:
        raise ValueError("inputs.group_log_expectation_N is None: GEPO divides by the expectation of each group")
    policies = select_policies(inputs)
    sequences = inputs.required_sequences
    mask_N, pi_N, mu_N = policies.mask_N, policies.pi_N.detach(), policies.mu_N
    log_expectation_N = torch.where(mask_N, inputs.group_log_expectation_N.detach(), 0)
    x_N = mu_N - pi_N
    k3_N = bounded_exp(-x_N) - 1 + x_N
    is_near_N = sequences.spread(sequences.mean(k3_N, mask_N)) < params.near_kl
    ratio_N = sequence_ratio(policies, torch.where(is_near_N, mu_N, log_expectation_N), sequences)
    bounds = {"clip_low": params.clip_low, "clip_high": params.clip_high}
    objective_N = clipped_objective(ratio_N, policies.advantages_N, **bounds)
    loss = aggregate(-objective_N, inputs, params.aggregation, num_loss_tokens, params.max_length_tokens)
    with torch.no_grad():
        shares = {**clip_masks(ratio_N, policies.advantages_N, **bounds), "gepo/near_mean": is_near_N}
        metrics = policy_metrics(inputs, loss, ratio_N=ratio_N, raw_weight_N=policies.raw_weight, shares=shares)
    return LossOutputs(loss=loss, metrics=metrics)
