"""DAPO's loss, arXiv 2503.14476: clip-higher and the mean over all tokens of the step.

    loss = sum_t m_t L_t / N          L_t as `rl.ppo` with clip 0.2 / 0.28

The wider upper bound leaves unlikely tokens room to grow. DAPO's other parts: groups without signal are dropped
(`rl.signal`), truncated rollouts masked (`rl.samples`) or punished softly (`rl.overlong`).
"""

from dataclasses import dataclass
from typing import get_args

from farflung.rl.checks import require_clip, require_name
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.ppo import PpoParams, ppo_loss
from farflung.rl.ratio import Anchor


@dataclass(frozen=True, kw_only=True, slots=True)
class DapoParams:
    clip_low: float = 0.2
    clip_high: float = 0.28
    anchor: Anchor = "behaviour"

    def __post_init__(self) -> None:
        require_clip(self.clip_low, self.clip_high)
        require_name("anchor", self.anchor, get_args(Anchor))


def dapo_loss(inputs: LossInputs, params: DapoParams, num_loss_tokens: int) -> LossOutputs:
    """See `rl.grpo.grpo_loss` for arguments and errors."""
    clipped = PpoParams(clip_low=params.clip_low, clip_high=params.clip_high, anchor=params.anchor)
    return ppo_loss(inputs, clipped, num_loss_tokens)
