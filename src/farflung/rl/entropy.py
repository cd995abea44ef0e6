"""Entropy bonus: keeps the policy from collapsing. Off unless asked for.

    exact     L_t = -coefficient * H_t                    H_t over the vocabulary, with its gradient
    sampled   L_t = coefficient * sg[pi_t] * pi_t         needs the sampled token's logprob alone

In expectation under pi the gradient of the second is that of -coefficient * H: d H = -E[pi_t d pi_t]. It has more
variance, and no vocabulary-sized tensor.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from farflung.rl.aggregate import aggregate
from farflung.rl.checks import require, require_loss_tokens, require_name
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.metrics import NUM_TOKENS
from farflung.rl.ratio import select_policies

EntropyForm = Literal["exact", "sampled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EntropyParams:
    coefficient: float = 1e-3
    form: EntropyForm = "sampled"

    def __post_init__(self) -> None:
        require(self.coefficient > 0, f"the entropy coefficient is {self.coefficient}: it must be above 0")
        require_name("entropy form", self.form, get_args(EntropyForm))


def entropy_loss(inputs: LossInputs, params: EntropyParams, num_loss_tokens: int) -> LossOutputs:
    """Mean over all tokens of the step; add it to an objective's loss.

    Raises:
        ValueError: "exact" with an entropy that is absent or carries no gradient, so that it would do nothing; or
            `num_loss_tokens` below 1.
    """
    require_loss_tokens(num_loss_tokens)
    if params.form == "exact":
        entropy_N = inputs.entropy_N
        if entropy_N is None or (inputs.trainer_logprobs_N.requires_grad and not entropy_N.requires_grad):
            raise ValueError("inputs.entropy_N is absent or has no gradient: the bonus would do nothing, use 'sampled'")
        bonus_N = torch.where(inputs.loss_mask_N, entropy_N, 0)
    else:
        pi_N = select_policies(inputs).pi_N
        bonus_N = -pi_N.detach() * pi_N
    loss = -params.coefficient * aggregate(bonus_N, inputs, "token_mean", num_loss_tokens)
    return LossOutputs(loss=loss, metrics={NUM_TOKENS: inputs.loss_mask_N.sum()})
