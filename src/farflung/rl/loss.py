"""What every policy objective takes and returns.

An objective is a function `(inputs, params, num_loss_tokens) -> LossOutputs`. It does not know models, devices or
micro-batches: losses of the micro-batches of one optimizer step add up to the loss of the step, and so do the metrics.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from farflung.rl.sequences import Sequences


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LossInputs:
    """Per completion token, flat over the documents of one micro-batch; N such tokens. All on one device."""

    trainer_logprobs_N: Tensor
    """[N] float, of the policy being trained, at the sampling temperature; carries the gradient."""
    behaviour_logprobs_N: Tensor
    """[N] float, of the policy that sampled (mu)."""
    advantages_N: Tensor
    """[N] float."""
    loss_mask_N: Tensor
    """[N] bool, True where a token may be learned from. Values elsewhere may be anything, nan included."""
    prox_logprobs_N: Tensor | None = None
    """[N] float, of the trainer when the policy version began; None = this is that moment, so it is its own anchor."""
    entropy_N: Tensor | None = None
    """[N] float: a metric, and the exact entropy bonus if it carries a gradient."""
    ref_logprobs_N: Tensor | None = None
    """[N] float, of the reference policy of a KL term."""
    group_log_expectation_N: Tensor | None = None
    """[N] float, for GEPO: log of the group's expectation of the sampler's probabilities (`rl.gepo`)."""
    sequences: Sequences | None = None
    """Which token belongs to which sequence; needed by whatever is measured per sequence."""

    def __post_init__(self) -> None:
        shape = self.trainer_logprobs_N.shape
        given = (
            self.prox_logprobs_N,
            self.entropy_N,
            self.ref_logprobs_N,
            self.group_log_expectation_N,
            None if self.sequences is None else self.sequences.sequence_N,
        )
        optional = [tensor for tensor in given if tensor is not None]
        for tensor in (self.behaviour_logprobs_N, self.advantages_N, self.loss_mask_N, *optional):
            if tensor.shape != shape or len(shape) != 1:
                raise ValueError(f"shapes {tuple(shape)} and {tuple(tensor.shape)}: all inputs must be [N] alike")
        if self.loss_mask_N.dtype != torch.bool:
            raise ValueError(f"loss_mask_N has dtype {self.loss_mask_N.dtype}: it must be bool, so that it selects")

    @property
    def required_sequences(self) -> Sequences:
        """Raises `ValueError` where there are none."""
        if self.sequences is None:
            raise ValueError("inputs.sequences is None: what is measured per sequence needs the document index")
        return self.sequences


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LossOutputs:
    loss: Tensor
    """Scalar: this micro-batch's part of the optimizer step's loss. Add over micro-batches and ranks, never average."""
    metrics: dict[str, Tensor]
    """Detached scalars on the loss's device, named `sum/...`, `max/...`, `min/...` after how they combine
    (`rl.metrics.reduce_metrics`)."""
