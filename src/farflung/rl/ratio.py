"""The three policies of a token, and the ratios between them.

    mu    behaviour logprobs, of the policy that sampled
    prox  trainer logprobs when the version began, no gradient
    pi    trainer logprobs, the only ones with a gradient

    behaviour   r_t = exp(pi_t - mu_t)       two policies: the ratio itself carries the correction
    decoupled   r_t = exp(pi_t - prox_t)     three policies: a weight prox / mu repairs the rest (`rl.guards`)
    sequence    s_i = exp(mean_t(pi_t - anchor_t)), one value for all tokens of a sequence: GSPO, arXiv 2507.18071

A sequence ratio here is the geometric mean over tokens: from the *sum* it would grow with length.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from farflung.rl.loss import LossInputs
from farflung.rl.sequences import Sequences

Anchor = Literal["decoupled", "behaviour"]
MAX_LOG_RATIO = 20.0
"""exp(20) is 5e8: far beyond every bound, far from overflow. As verl and OpenRLHF. Beyond it the gradient is 0."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Policies:
    """[N] logprobs and advantages, 0 at masked positions."""

    pi_N: Tensor
    mu_N: Tensor
    prox_N: Tensor
    advantages_N: Tensor
    mask_N: Tensor

    @property
    def raw_weight(self) -> Tensor:
        """prox / mu, unbounded, without gradient: staleness and engine mismatch."""
        return bounded_exp(self.prox_N - self.mu_N)

    def log_ratio(self, anchor: Anchor) -> Tensor:
        return self.pi_N - (self.prox_N if anchor == "decoupled" else self.mu_N)

    def ratio(self, anchor: Anchor) -> Tensor:
        return bounded_exp(self.log_ratio(anchor))


def select_policies(inputs: LossInputs) -> Policies:
    """Only pi keeps its gradient. Selected before any arithmetic, never multiplied by 0: what a masked position holds,
    inf and nan included, reaches neither the loss nor, on the way back, the gradient."""
    mask_N = inputs.loss_mask_N
    prox_N = inputs.trainer_logprobs_N if inputs.prox_logprobs_N is None else inputs.prox_logprobs_N
    return Policies(
        pi_N=torch.where(mask_N, inputs.trainer_logprobs_N, 0),
        mu_N=torch.where(mask_N, inputs.behaviour_logprobs_N.detach(), 0),
        prox_N=torch.where(mask_N, prox_N.detach(), 0),
        advantages_N=torch.where(mask_N, inputs.advantages_N.detach(), 0),
        mask_N=mask_N,
    )


def bounded_exp(log_ratio_N: Tensor) -> Tensor:
    """exp of a log-ratio within +-`MAX_LOG_RATIO`."""
    return log_ratio_N.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def sequence_ratio(policies: Policies, anchor_N: Tensor, sequences: Sequences) -> Tensor:
    """[N] s_i = exp(mean_t(pi - anchor)) at each token of sequence i, differentiable per token.

    s_it = sg[s_i] * exp(pi_t - sg[pi_t]) has the value s_i and the gradient s_i at each token; a sequence mean of the
    losses divides by T_i, which makes it the gradient of s_i. As verl `compute_policy_loss_gspo`.
    """
    pi_N = policies.pi_N
    log_ratio_S = sequences.mean(pi_N.detach() - anchor_N, policies.mask_N)
    return sequences.spread(bounded_exp(log_ratio_S)) * (pi_N - pi_N.detach()).exp()
