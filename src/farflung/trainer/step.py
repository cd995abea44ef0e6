"""From samples to new weights: one optimizer step, or several on the parts of one batch.

    samples -> minibatches, an optimizer step each -> micro-batches, a forward and backward pass each
    pass:  logprobs of the published policy -> objective / N -> gradient;   step:  gradients add up -> new masters

N, the number of trainable tokens (or sequences), is counted once over the whole optimizer step, so how that is cut into
micro-batches, or shared among ranks, does not matter. With several steps the clip stays centred on the policy at the
start of the version: its logprobs are computed once, before the first step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from farflung.rl.batch import FlatBatch, count_loss_sequences, count_loss_tokens, flatten
from farflung.rl.loss import LossInputs
from farflung.rl.metrics import reduce_metrics
from farflung.rl.minibatches import minibatches
from farflung.rl.objectives import Objective
from farflung.rl.packing import split_micro_batches
from farflung.rl.types import TrainingSample
from farflung.trainer.forward import batch_logprobs
from farflung.trainer.policy_base import PolicyBase


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
    """False when a gradient was not finite (its step changed nothing) or the weights are not (they are spoilt)."""
    grad_norm: float | None
    """Before clipping, the largest of the steps; None when one was not finite."""
    num_loss_tokens: int
    metrics: dict[str, float]
    num_steps: int = 1
    """Optimizer steps that were applied."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class OptimizerStep:
    """The samples of one optimizer step, cut and counted."""

    micro_batches: tuple[FlatBatch, ...]
    num_loss_tokens: int
    num_loss_sequences: int


def train_step(policy: PolicyBase, samples: Sequence[TrainingSample], params: StepParams, lr: float) -> StepResult:
    """One optimizer step. Raises `ValueError` without a loss token; ask `count_loss_tokens` first."""
    return train_version(policy, samples, params, lambda _: lr)


def train_version(
    policy: PolicyBase,
    samples: Sequence[TrainingSample],
    params: StepParams,
    rate: Callable[[int], float],
    *,
    num_steps: int = 1,
    seed: int = 0,
) -> StepResult:
    """Up to `num_steps` optimizer steps, each on its part of the samples; a part without a loss token is left out.

    Args:
        rate: learning rate of each of these steps, counted from 0.
        seed: of the order of the samples, unused with one step.

    Raises:
        ValueError: no loss token in all samples; ask `count_loss_tokens` first.
    """
    parts = [part for part in minibatches(samples, num_steps, seed) if count_loss_tokens(part)]
    if not parts:
        raise ValueError("no loss token in any sample: there must be at least one to learn from")
    steps = [prepare(part, params) for part in parts]
    steps = [steps[0], *(_with_prox(policy, step, params) for step in steps[1:])]
    metrics: list[Mapping[str, Tensor]] = []
    norms: list[float] = []
    for number, step in enumerate(steps):
        metrics += accumulate(policy, step, params)
        norm = policy.apply_gradient(rate(number), params.max_grad_norm)
        if norm is None:
            break
        norms.append(norm)
    is_finite = len(norms) == len(steps)
    return StepResult(
        is_applied=is_finite and policy.is_finite(),
        grad_norm=max(norms) if is_finite else None,
        num_loss_tokens=sum(step.num_loss_tokens for step in steps),
        metrics=reduce_metrics(metrics, num_steps=min(len(norms) + 1, len(steps))),
        num_steps=len(norms),
    )


def prepare(samples: Sequence[TrainingSample], params: StepParams) -> OptimizerStep:
    """Cut into micro-batches, and counted before any is computed."""
    return OptimizerStep(
        micro_batches=tuple(flatten(part) for part in split_micro_batches(samples, params.micro_batch_tokens)),
        num_loss_tokens=count_loss_tokens(samples),
        num_loss_sequences=count_loss_sequences(samples),
    )


def accumulate(policy: PolicyBase, step: OptimizerStep, params: StepParams) -> list[Mapping[str, Tensor]]:
    """Add the step's gradient to what lies in `policy.published`; metrics of each micro-batch.

    A rank that has some of the step's micro-batches (or none) adds its part: counts are those of the whole step.
    """
    return [_accumulate(policy, batch.to(policy.device), step, params) for batch in step.micro_batches]


def _accumulate(policy: PolicyBase, batch: FlatBatch, step: OptimizerStep, params: StepParams) -> Mapping[str, Tensor]:
    logprobs_M, entropy_M = completion_logprobs(policy, batch, params)
    outputs = params.objective(
        LossInputs(
            trainer_logprobs_N=logprobs_M,
            behaviour_logprobs_N=batch.behaviour_logprobs_M,
            advantages_N=batch.advantages_M,
            loss_mask_N=batch.loss_mask_M,
            prox_logprobs_N=batch.prox_logprobs_M,
            ref_logprobs_N=batch.ref_logprobs_M,
            entropy_N=entropy_M,
            group_log_expectation_N=batch.group_log_expectation_M,
            sequences=batch.sequences(step.num_loss_sequences),
        ),
        step.num_loss_tokens,
    )
    outputs.loss.backward()
    policy.collect_gradient()
    return outputs.metrics


def _with_prox(policy: PolicyBase, step: OptimizerStep, params: StepParams) -> OptimizerStep:
    """With the logprobs of the policy as it is now."""
    with torch.no_grad():
        batches = tuple(
            replace(batch, prox_logprobs_M=completion_logprobs(policy, batch.to(policy.device), params)[0])
            for batch in step.micro_batches
        )
    return replace(step, micro_batches=batches)


def completion_logprobs(policy: PolicyBase, batch: FlatBatch, params: StepParams) -> tuple[Tensor, Tensor]:
    """(logprobs_M, entropy_M) of the completion tokens under the published policy."""
    return batch_logprobs(policy.published, batch, params.temperature, params.reserved_token_ids)
