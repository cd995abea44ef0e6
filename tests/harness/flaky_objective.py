"""An objective whose loss is now and then not a number: a function of what it is given, so the same in every process.

For trainers that are other processes: `trainer.objective.name = "flaky_objective:flaky"` with this folder importable.
"""

from dataclasses import replace
from typing import Any

from farflung.rl.grpo import GrpoParams, grpo_loss
from farflung.rl.loss import LossInputs, LossOutputs

ONE_IN = 8


def flaky(inputs: LossInputs, _params: Any, num_loss_tokens: int) -> LossOutputs:
    outputs = grpo_loss(inputs, GrpoParams(), num_loss_tokens)
    draw = int(1e4 * abs(float(inputs.behaviour_logprobs_N.sum())))
    return outputs if draw % ONE_IN else replace(outputs, loss=outputs.loss * float("nan"))
