"""IPO of prime-rl: as `rl.dppo`, but a token is dropped whichever way its probability moved.

keep_t = |p_t - q_t| <= bound          p = e^pi, q = e^mu
"""

from dataclasses import dataclass

from farflung.rl.checks import require
from farflung.rl.dppo import masked_ratio_loss, probability_difference
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.ratio import select_policies


@dataclass(frozen=True, kw_only=True, slots=True)
class IpoParams:
    bound: float = 0.2
    advantage_scale: float = 1.0
    kl_scale: float = 1e-3

    def __post_init__(self) -> None:
        require(0 < self.bound <= 1, f"bound is {self.bound}: it must be in (0, 1], usually 0.2")
        require(self.advantage_scale > 0, f"advantage_scale is {self.advantage_scale}: it must be above 0")
        require(self.kl_scale >= 0, f"kl_scale is {self.kl_scale}: it must be >= 0")


def ipo_loss(inputs: LossInputs, params: IpoParams, num_loss_tokens: int) -> LossOutputs:
    """See `rl.grpo.grpo_loss` for arguments and errors."""
    policies = select_policies(inputs)
    moved_N = probability_difference(policies)
    return masked_ratio_loss(
        inputs,
        policies,
        low_N=moved_N < -params.bound,
        high_N=moved_N > params.bound,
        advantage_scale=params.advantage_scale,
        kl_scale=params.kl_scale,
        num_loss_tokens=num_loss_tokens,
    )
