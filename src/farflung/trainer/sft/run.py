"""The loop: shuffled examples, packed, one optimizer step per batch; measured, saved, resumed.

    loss = - sum of log p(token) over the assistant's tokens of the step / their number

The order of epoch e is a permutation drawn from (seed, e), so a run that was killed sees what an unbroken one sees and
ends with the same weights. Forward passes use the rounded weights that are published, as in reinforcement learning.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from farflung.errors import OurFault, UserError
from farflung.model.adapter_files import save_adapter_folder
from farflung.model.folder import LoadedModel, save_folder
from farflung.rl.batch import count_loss_tokens, flatten
from farflung.rl.packing import split_micro_batches
from farflung.rl.types import TrainingSample
from farflung.telemetry.metrics import MetricsLog
from farflung.trainer.forward import batch_logprobs
from farflung.trainer.make_policy import make_policy
from farflung.trainer.policy_base import PolicyBase
from farflung.trainer.schedule import Schedule
from farflung.trainer.sft.config import SftConfig
from farflung.trainer.sft.state import SftProgress, load_state, save_state

MODEL_FOLDER = "model"
ADAPTER_FOLDER = "adapter"
METRICS_FILE = "metrics.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """After a step; `heldout_loss` where it was measured."""

    step: int
    num_steps: int
    loss: float
    heldout_loss: float | None


def run_sft(
    model: LoadedModel,
    samples: Sequence[TrainingSample],
    config: SftConfig,
    out: Path,
    *,
    report: Callable[[Measured], None],
    should_stop: Callable[[], bool],
) -> SftProgress:
    """Train until the last step or until asked to stop; a later call goes on. Leaves `out/model`.

    Raises:
        UserError: nothing to train on, or `out` holds another run.
        OurFault: a gradient is not finite, or the disk refuses.
    """
    train, heldout = split_heldout(samples, config)
    if not train:
        raise UserError(f"{len(samples)} examples and heldout_share {config.heldout_share}: none is left to train on")
    steps_per_epoch = math.ceil(len(train) / config.batch_size)
    num_steps = config.epochs * steps_per_epoch
    policy = make_policy(model.config, model.state, config.lora, config.optimizer, config.compute, seed=config.seed)
    progress, is_finished = _resume(policy, model, samples, config, out)
    if is_finished:
        return progress
    metrics = MetricsLog(out / METRICS_FILE)
    schedule = _schedule(config, num_steps)
    while progress.step < num_steps and not should_stop():
        epoch, position = divmod(progress.step, steps_per_epoch)
        order = epoch_order(len(train), config.seed, epoch)
        chosen = order[position * config.batch_size : (position + 1) * config.batch_size]
        loss = _step(policy, [train[index] for index in chosen], config, schedule.at(progress.step))
        step = progress.step + 1
        is_last = step == num_steps
        heldout_loss = None
        if heldout and (is_last or step % config.eval_every_steps == 0):
            heldout_loss = mean_loss(policy, heldout, config.micro_batch_tokens)
        progress = SftProgress(
            step=step,
            best_loss=min(progress.best_loss, math.inf if heldout_loss is None else heldout_loss),
            run_digest=progress.run_digest,
        )
        metrics.write(
            "sft", {"loss": loss, "heldout_loss": heldout_loss, "learning_rate": schedule.at(step - 1)}, step=step
        )
        report(Measured(step=step, num_steps=num_steps, loss=loss, heldout_loss=heldout_loss))
        if is_last or step % config.checkpoint_every_steps == 0 or should_stop():
            save_state(out, progress, policy.masters_state(), policy.optimizer_state())
    save_folder(out / MODEL_FOLDER, model.config, policy.published_state(), model.tokenizer_files)
    if (adapter := policy.adapter()) is not None:
        save_adapter_folder(out / ADAPTER_FOLDER, adapter)
    if progress.step == num_steps:
        save_state(out, progress, {}, {})  # three times the model's size, and nobody goes on from it
    return progress


def split_heldout(
    samples: Sequence[TrainingSample], config: SftConfig
) -> tuple[list[TrainingSample], list[TrainingSample]]:
    """(to train on, to measure with), chosen by the seed; each in the order of the file."""
    num_heldout = int(len(samples) * config.heldout_share)
    chosen = set(epoch_order(len(samples), config.seed, -1)[:num_heldout])
    return (
        [sample for index, sample in enumerate(samples) if index not in chosen],
        [sample for index, sample in enumerate(samples) if index in chosen],
    )


def epoch_order(num_samples: int, seed: int, epoch: int) -> list[int]:
    """A permutation that depends on the arguments alone."""
    order: list[int] = np.random.default_rng([seed, epoch + 1]).permutation(num_samples).tolist()
    return order


def mean_loss(policy: PolicyBase, samples: Sequence[TrainingSample], micro_batch_tokens: int) -> float:
    """Mean over the assistant's tokens, without gradient."""
    total = 0.0
    with torch.no_grad():
        for part in split_micro_batches(samples, micro_batch_tokens):
            batch = flatten(part).to(policy.device)
            logprobs_M, _ = batch_logprobs(policy.published, batch)
            total -= float(torch.where(batch.loss_mask_M, logprobs_M, 0).sum(dtype=torch.float64))
    return total / count_loss_tokens(samples)


def _step(policy: PolicyBase, samples: Sequence[TrainingSample], config: SftConfig, lr: float) -> float:
    num_tokens, total = count_loss_tokens(samples), 0.0
    for part in split_micro_batches(samples, config.micro_batch_tokens):
        batch = flatten(part).to(policy.device)
        logprobs_M, _ = batch_logprobs(policy.published, batch)
        loss = -torch.where(batch.loss_mask_M, logprobs_M, 0).sum() / num_tokens
        loss.backward()
        policy.collect_gradient()
        total += float(loss.detach())
    if policy.apply_gradient(lr, config.optimizer.max_grad_norm) is None or not policy.is_finite():
        raise OurFault("the gradient or the weights are not finite: lower --sft.optimizer.lr; the last state is kept")
    return total


def _schedule(config: SftConfig, num_steps: int) -> Schedule:
    optimizer = config.optimizer
    return Schedule(
        shape=optimizer.schedule,
        lr=optimizer.lr,
        warmup_steps=optimizer.warmup_steps,
        total_steps=num_steps,
        final_share=optimizer.final_share,
        decay_share=optimizer.decay_share,
    )


def _resume(
    policy: PolicyBase, model: LoadedModel, samples: Sequence[TrainingSample], config: SftConfig, out: Path
) -> tuple[SftProgress, bool]:
    """Where the run stands, and whether it is finished: then its state has no tensors any more."""
    digest = _run_digest(model, samples, config)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out is {out}, where nothing can be written ({error.strerror}): choose another") from error
    found = load_state(out)
    if found is None:
        return SftProgress(step=0, best_loss=math.inf, run_digest=digest), False
    progress, masters, optimizer = found
    if progress.run_digest != digest:
        raise UserError(
            f"{out} holds a run with other examples, settings or weights: choose another --out, or remove it"
        )
    if not masters:
        return progress, True
    policy.restore(masters, optimizer)
    return progress, False


def _run_digest(model: LoadedModel, samples: Sequence[TrainingSample], config: SftConfig) -> str:
    """What may change without another result is left out: when it is measured and saved, and where it is cut."""
    free = {"eval_every_steps", "checkpoint_every_steps", *(() if config.lora.rank else ("lora",))}
    digest = hashlib.sha256(config.model_dump_json(exclude=free).encode())
    for sample in samples:
        digest.update(len(sample.tokens).to_bytes(8, "little") + sample.tokens.tobytes() + sample.loss_mask.tobytes())
    for name, tensor in model.state.items():
        digest.update(name.encode() + tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
