"""Dr.GRPO, arXiv 2503.20783: the clipped surrogate over a constant, so that length earns and costs nothing.

    loss = sum_i sum_t m_it L_it / (S * L_max)          L_it as `rl.ppo`

Dividing by a sequence's own length makes long wrong answers cheap. The other half of Dr.GRPO is not to divide
advantages by the group's std (`rl.advantage`, "none").
"""

from dataclasses import dataclass
from typing import get_args

from farflung.rl.aggregate import require_aggregation
from farflung.rl.checks import require_clip, require_name
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.ppo import PpoParams, ppo_loss
from farflung.rl.ratio import Anchor


@dataclass(frozen=True, kw_only=True, slots=True)
class DrGrpoParams:
    max_length_tokens: int
    """L_max: the longest completion that is allowed, not the longest met."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    anchor: Anchor = "behaviour"

    def __post_init__(self) -> None:
        require_clip(self.clip_low, self.clip_high)
        require_name("anchor", self.anchor, get_args(Anchor))
        require_aggregation("constant", self.max_length_tokens)


def dr_grpo_loss(inputs: LossInputs, params: DrGrpoParams, num_loss_tokens: int) -> LossOutputs:
    """See `rl.grpo.grpo_loss` for arguments and errors; needs sequences."""
    clipped = PpoParams(
        clip_low=params.clip_low,
        clip_high=params.clip_high,
        anchor=params.anchor,
        aggregation="constant",
        max_length_tokens=params.max_length_tokens,
    )
    return ppo_loss(inputs, clipped, num_loss_tokens)
