"""How a user of TRL trains on a CPU: `GRPOTrainer` on our model, tokenizer, tasks, batch and settings.

Tuned for this machine and for speed: float32, SDPA attention, no gradient checkpointing, one micro-batch per step, no
logging, saving or progress bar, AdamW with the same betas and the same learning-rate shape as ours. Loss: `dapo` with
clip 0.2 / 0.28 and delta 4, advantages not scaled, no KL, which is our default objective where sampling is on-policy.
"""

import logging
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
from datasets import Dataset
from datasets import logging as datasets_logging
from torch import Tensor

from benchmarks import peers
from farflung.envs.base import Environment
from farflung.trainer.config import OptimizerConfig
from farflung.trainer.model_source import ModelDescription
from farflung.trainer.schedule import Schedule

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its optional dependencies
    from trl import GRPOConfig, GRPOTrainer

VERSION = f"trl {version('trl')}"
MATCHED = {
    "loss_type": "dapo",
    "epsilon": 0.2,
    "epsilon_high": 0.28,
    "delta": 4.0,
    "scale_rewards": "none",
    "beta": 0.0,
    "temperature": 1.0,
    "num_generations": 8,
}
"""TRL's names for the demo's objective."""
FOR_SPEED = {
    "bf16": False,
    "use_cpu": True,
    "gradient_checkpointing": False,
    "logging_strategy": "no",
    "save_strategy": "no",
    "report_to": [],
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
}


def quiet() -> None:
    """No progress bars and no advice."""
    transformers.logging.set_verbosity_error()
    datasets_logging.set_verbosity_error()
    datasets_logging.disable_progress_bar()
    logging.getLogger("trl").setLevel(logging.ERROR)


def tokenizer(description: ModelDescription) -> Any:
    """The same files, read by transformers."""
    with tempfile.TemporaryDirectory(prefix="farflung-bench-") as folder:
        for name, data in description.tokenizer.files.items():
            Path(folder, name).write_bytes(data)
        return transformers.PreTrainedTokenizerFast.from_pretrained(folder, padding_side="left")


def exact_match(environment: Environment) -> Callable[..., list[float]]:
    """A reward function that grades with the environment itself; the data set says which task."""

    def reward(completions: list[str], index: list[int], **_: object) -> list[float]:
        tasks = [environment.task("train", number) for number in index]
        grades = [environment.grade(task, text) for task, text in zip(tasks, completions, strict=True)]
        return [grade.reward or 0.0 for grade in grades]

    return reward


def tasks_dataset(environment: Environment, indices: Sequence[int]) -> Dataset:
    """Training tasks with their prompts as plain text."""
    prompts = [environment.task("train", index).messages[0].content for index in indices]
    return Dataset.from_dict({"prompt": prompts, "index": list(indices)})


def schedule_of(optimizer: torch.optim.Optimizer, config: OptimizerConfig, total_steps: int) -> Any:
    """Our learning-rate shape as a scheduler of torch."""
    shape = Schedule(
        shape=config.schedule,
        lr=1.0,
        warmup_steps=config.warmup_steps,
        total_steps=total_steps,
        final_share=config.final_share,
        decay_share=config.decay_share,
    )
    return torch.optim.lr_scheduler.LambdaLR(optimizer, shape.at)


def grpo_trainer(
    description: ModelDescription,
    state: Mapping[str, Tensor],
    environment: Environment,
    optimizer: OptimizerConfig,
    *,
    folder: Path,
    num_completions: int,
    max_completion_tokens: int,
    max_steps: int,
    indices: Sequence[int],
    callbacks: Sequence[Any] = (),
    **settings: Any,
) -> GRPOTrainer:
    """A trainer that starts from `state` (Hugging Face names) and takes one micro-batch of `num_completions` a step.

    Args:
        folder: where it may write.
        indices: training tasks, in the order in which they are used.
        settings: further fields of `GRPOConfig`, instead of `MATCHED` and `FOR_SPEED`.
    """
    quiet()
    fields: dict[str, Any] = {
        **MATCHED,
        **FOR_SPEED,
        "output_dir": str(folder),
        "per_device_train_batch_size": num_completions,
        "max_completion_length": max_completion_tokens,
        "max_steps": max_steps,
        "max_grad_norm": optimizer.max_grad_norm,
        "shuffle_dataset": False,
        **settings,
    }
    model = peers.llama(description.config, {name: tensor.float() for name, tensor in state.items()}).train()
    adamw = torch.optim.AdamW(
        model.parameters(),
        lr=optimizer.lr,
        betas=(optimizer.beta1, optimizer.beta2),
        eps=optimizer.eps,
        weight_decay=optimizer.weight_decay,
        fused=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GRPOTrainer(
            model=model,
            reward_funcs=exact_match(environment),
            args=GRPOConfig(**fields),
            train_dataset=tasks_dataset(environment, indices),
            processing_class=tokenizer(description),
            optimizers=(adamw, schedule_of(adamw, optimizer, max_steps)),
            callbacks=list(callbacks),
        )
