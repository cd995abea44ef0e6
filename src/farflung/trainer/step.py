"""One optimizer step: samples in, new weights and figures out.

    samples -> micro-batches -> logprobs of the published policy -> objective / N -> gradient -> AdamW on the masters

N, the number of trainable tokens (or sequences), is counted once over the whole step, so how it is cut does not matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from farflung.model.head import token_logprobs
from farflung.model.layout import SequenceLayout
from farflung.rl.batch import FlatBatch, count_loss_sequences, count_loss_tokens, flatten, split_micro_batches
from farflung.rl.loss import LossInputs
from farflung.rl.metrics import reduce_metrics
from farflung.rl.objectives import Objective
from farflung.rl.types import TrainingSample
from farflung.trainer.policy import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class StepParams:
    """What a step needs beside the samples."""

    objective: Objective
    temperature: float
    reserved_token_ids: tuple[int, ...]
    micro_batch_tokens: int
    max_grad_norm: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    is_applied: bool
    """False when the gradient was not finite (the weights are as before) or the weights are not (they are spoilt)."""
    grad_norm: float | None
    """Before clipping; None when it was not finite."""
    num_loss_tokens: int
    metrics: dict[str, float]


def train_step(policy: Policy, samples: Sequence[TrainingSample], params: StepParams, lr: float) -> StepResult:
    """Raises `ValueError` when there is nothing to learn from; ask `count_loss_tokens` first."""
    num_loss_tokens, num_loss_sequences = count_loss_tokens(samples), count_loss_sequences(samples)
    parts = []
    for micro_batch in split_micro_batches(samples, params.micro_batch_tokens):
        batch = flatten(micro_batch)
        logprobs_M, entropy_M = completion_logprobs(policy, batch, params)
        outputs = params.objective(
            LossInputs(
                trainer_logprobs_N=logprobs_M,
                behaviour_logprobs_N=batch.behaviour_logprobs_M,
                advantages_N=batch.advantages_M,
                loss_mask_N=batch.loss_mask_M,
                entropy_N=entropy_M,
                group_log_expectation_N=batch.group_log_expectation_M,
                sequences=batch.sequences(num_loss_sequences),
            ),
            num_loss_tokens,
        )
        outputs.loss.backward()
        parts.append(outputs.metrics)
    grad_norm = policy.apply_gradient(lr, params.max_grad_norm)
    return StepResult(
        is_applied=grad_norm is not None and policy.is_finite(),
        grad_norm=grad_norm,
        num_loss_tokens=num_loss_tokens,
        metrics=reduce_metrics(parts),
    )


def completion_logprobs(policy: Policy, batch: FlatBatch, params: StepParams) -> tuple[Tensor, Tensor]:
    """(logprobs_M, entropy_M) of the completion tokens under the published policy."""
    hidden_ND = policy.published(batch.tokens_N, SequenceLayout.from_lengths(batch.lengths))
    return token_logprobs(
        hidden_ND.index_select(0, batch.rows_M),
        policy.published.lm_head_weight,
        batch.targets_M,
        temperature=params.temperature,
        reserved_token_ids=params.reserved_token_ids,
    )
