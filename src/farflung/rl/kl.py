"""KL to a reference policy, from sampled tokens (Schulman, joschu.net/blog/kl-approx.html), and where each belongs.

    x = pi_t - ref_t            expectation under pi          expected gradient in the loss
    k1  x                       KL(pi, ref)                   0: a reward penalty, never a loss
    k2  x^2 / 2                 close to KL(pi, ref)          of KL(pi, ref), right
    k3  exp(-x) - 1 + x >= 0    KL(pi, ref), low variance     of KL(ref, pi), the other direction
    k3+           the value of k3 with the gradient of k2 (verl)
    k3_unbiased   r * k3, r = pi / mu with its gradient: that of KL(pi, ref), for samples of mu too (DeepSeek-V3.2,
                  arXiv 2512.02556; the score-function term of 2506.09477)

-x is limited to +-20; where that limit acts k3 has no gradient through the exponential.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from farflung.rl.aggregate import aggregate
from farflung.rl.checks import require, require_loss_tokens, require_name
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.metrics import NUM_TOKENS, token_sum
from farflung.rl.ratio import bounded_exp, select_policies

LossKl = Literal["k2", "k3", "k3+", "k3_unbiased"]
"""Those with a gradient."""
RewardKl = Literal["k1", "k2", "k3"]
"""Those that differ in value: what is in the reward has no gradient of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KlParams:
    coefficient: float = 1e-3
    estimator: LossKl = "k2"

    def __post_init__(self) -> None:
        require(self.coefficient > 0, f"the KL coefficient is {self.coefficient}: it must be above 0, usually 1e-3")
        require(
            self.estimator != "k1",  # type: ignore[comparison-overlap]
            "the KL estimator is 'k1' in the loss, where its expected gradient is 0 and it does nothing: use it in the "
            f"reward (placement reward), or one of {', '.join(get_args(LossKl))}",
        )
        require_name("KL estimator", self.estimator, get_args(LossKl))


def k1(log_ratio_N: Tensor) -> Tensor:
    return log_ratio_N


def k2(log_ratio_N: Tensor) -> Tensor:
    return log_ratio_N.square() / 2


def k3(log_ratio_N: Tensor) -> Tensor:
    return bounded_exp(-log_ratio_N) - 1 + log_ratio_N


def k3_plus(log_ratio_N: Tensor) -> Tensor:
    """Straight-through: forward k3, backward k2."""
    backward_N = k2(log_ratio_N)
    return backward_N - backward_N.detach() + k3(log_ratio_N).detach()


def require_reward_estimator(estimator: str) -> None:
    """Raises `ValueError` for one that differs from another in its gradient alone."""
    require(
        estimator in get_args(RewardKl),
        f"the KL estimator is {estimator!r} in the reward, which carries no gradient: it must be one of "
        f"{', '.join(get_args(RewardKl))}",
    )


def kl_in_reward(logprobs_N: Tensor, ref_logprobs_N: Tensor, mask_N: Tensor, estimator: RewardKl = "k1") -> Tensor:
    """[N] without gradient, 0 where masked: subtract beta times it from the rewards (`rl.samples`).

    Args:
        logprobs_N: of the policy whose actions the reward judges: the one that sampled.

    Raises:
        ValueError: an estimator that differs from another in its gradient alone.
    """
    require_reward_estimator(estimator)
    value = {"k1": k1, "k2": k2, "k3": k3}[estimator]
    difference_N = torch.where(mask_N, logprobs_N - ref_logprobs_N, 0)
    return torch.where(mask_N, value(difference_N), 0).detach()


def kl_loss(inputs: LossInputs, params: KlParams, num_loss_tokens: int) -> LossOutputs:
    """coefficient * mean over all tokens of the step; add it to an objective's loss.

    Raises:
        ValueError: no reference logprobs, or `num_loss_tokens` below 1.
    """
    require_loss_tokens(num_loss_tokens)
    if inputs.ref_logprobs_N is None:
        raise ValueError("inputs.ref_logprobs_N is None: a KL term needs the reference's logprobs")
    policies = select_policies(inputs)
    x_N = policies.pi_N - torch.where(policies.mask_N, inputs.ref_logprobs_N.detach(), 0)
    if params.estimator == "k2":
        kl_N = k2(x_N)
    elif params.estimator == "k3":
        kl_N = k3(x_N)
    elif params.estimator == "k3+":
        kl_N = k3_plus(x_N)
    else:
        kl_N = policies.ratio("behaviour") * k3(x_N)
    loss = params.coefficient * aggregate(kl_N, inputs, "token_mean", num_loss_tokens)
    metrics = {NUM_TOKENS: policies.mask_N.sum(), "sum/kl": token_sum(k3(x_N).detach(), policies.mask_N)}
    return LossOutputs(loss=loss, metrics=metrics)
