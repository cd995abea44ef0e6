"""TRL's own loss on tensors of our choosing: its trainer, with the model's logprobs replaced by a leaf tensor.

Nothing of TRL's arithmetic is repeated here: `loss` calls `GRPOTrainer._compute_loss`, `rollout_batch` calls
`GRPOTrainer._generate_and_score_completions` with given completions in place of generation.
"""

import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from farflung.envs.base import Environment
from farflung.envs.registry import load_environment
from farflung.model.factory import random_state
from farflung.rl.loss import LossInputs
from farflung.rl.objectives import Objective
from farflung.rl.sequences import Sequences
from farflung.trainer.config import ModelSourceConfig, OptimizerConfig
from farflung.trainer.model_source import ModelDescription, describe

MAX_COMPLETION_TOKENS = 16
LENGTHS = (3, 7, 1, 5, 16, 2, 9, 4)
"""Completion tokens of two groups of four."""
PROMPT_TOKENS = 7


@dataclass(frozen=True, kw_only=True, eq=False)
class Tokens:
    """What both sides are given, [B, T] right-padded; padding holds numbers that must not matter."""

    pi: Tensor
    old: Tensor
    sampler: Tensor
    ref: Tensor
    advantages_B: Tensor
    mask: Tensor
    """Bool."""

    @property
    def num_loss_tokens(self) -> int:
        return int(self.mask.sum())

    @property
    def num_loss_sequences(self) -> int:
        return int(self.mask.any(dim=1).sum())


def tokens(seed: int = 0, *, spread: float = 0.5, mismatch: float = 0.1, lengths: Sequence[int] = LENGTHS) -> Tokens:
    """Ragged rows: pi within `spread` of old, old within `mismatch` of the sampler, advantages of both signs."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths))

    def noise(scale: float) -> Tensor:
        return scale * torch.randn(shape, generator=generator)

    sampler = -1.5 - torch.rand(shape, generator=generator)
    old = sampler + noise(mismatch)
    return Tokens(
        pi=old + noise(spread),
        old=old,
        sampler=sampler,
        ref=old + noise(spread),
        advantages_B=torch.randn(len(lengths), generator=generator),
        mask=torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1),
    )


def rows(given: Tokens, chosen: slice) -> Tokens:
    """Some of the sequences."""
    return Tokens(**{field.name: getattr(given, field.name)[chosen] for field in fields(given)})


def description() -> ModelDescription:
    """The tiny Llama that both sides are."""
    source = ModelSourceConfig(hidden_size=16, num_layers=1, num_heads=2, intermediate_size=16)
    return describe(source, _environment())


def trainer(**settings: Any) -> Any:
    """A `GRPOTrainer` with these fields of `GRPOConfig`, in training mode."""
    from benchmarks import trl_peer  # here, so that importing this module needs no TRL

    model = description()
    config: dict[str, Any] = {"delta": None, "num_generations": 4} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = trl_peer.grpo_trainer(
            model,
            random_state(model.config, seed=0, std=0.2),
            _environment(),
            OptimizerConfig(),
            folder=Path(tempfile.mkdtemp(prefix="farflung-peer-")),
            num_completions=config.pop("num_completions", len(LENGTHS)),
            max_completion_tokens=MAX_COMPLETION_TOKENS,
            max_steps=1,
            indices=range(len(LENGTHS)),
            **{name: value for name, value in config.items() if name != "beta"},
        )
    made.beta = config.get("beta", 0.0)  # its constructor would fetch a reference model by name
    made.current_gradient_accumulation_steps = made.args.gradient_accumulation_steps
    return made


def loss(
    made: Any, given: Tokens, *, weight: Tensor | None = None, num_items: int | None = None
) -> tuple[float, Tensor]:
    """(value, gradient at pi [B, T]) of TRL's loss, policy ratio pi / old.

    Args:
        weight: TRL's correction of sampler mismatch, [B, T] or [B, 1], as `rollout_batch` gives it.
        num_items: tokens of the whole step, if `given` is a part of it.
    """
    leaf = given.pi.clone().requires_grad_()
    made._get_per_token_logps_and_entropies = lambda *_, **__: (leaf, torch.zeros_like(leaf), None)
    batch, length = leaf.shape
    mask = given.mask.long()
    inputs = {
        "prompt_ids": torch.ones(batch, 1, dtype=torch.long),
        "prompt_mask": torch.ones(batch, 1, dtype=torch.long),
        "completion_ids": torch.ones(batch, length, dtype=torch.long),
        "completion_mask": mask,
        "advantages": given.advantages_B,
        "num_items_in_batch": torch.tensor(given.num_loss_tokens if num_items is None else num_items),
        "old_per_token_logps": given.old,
        "ref_per_token_logps": given.ref,
        "sampling_per_token_logps": given.sampler,
    }
    made.use_vllm = weight is not None
    if weight is not None:
        inputs["importance_sampling_ratio"] = weight
    value = made._compute_loss(made.model, inputs)
    value.backward()
    assert leaf.grad is not None
    return float(value.detach()), leaf.grad


def rollout_batch(made: Any, given: Tokens, *, rewards: Sequence[float | None], tokens: Tensor | None = None) -> Any:
    """What TRL makes of given completions: advantages, masks and its weight old / sampler.

    Args:
        rewards: one each; None = cannot be graded.
        tokens: [B, T] completion ids; None = digits that end nowhere.
    """
    ids = torch.full(given.pi.shape, 3) if tokens is None else tokens
    completions = [row[keep].tolist() for row, keep in zip(ids, given.mask, strict=True)]
    sampler = [row[keep].tolist() for row, keep in zip(given.sampler, given.mask, strict=True)]
    prompts = [[3] * PROMPT_TOKENS] * len(completions)
    texts = [""] * len(completions)
    made.use_vllm = True
    made._generate = lambda _: (prompts, completions, None, texts, sampler, {}, None, None)
    made._get_per_token_logps_and_entropies = lambda *_, **__: (given.old, None, None)
    table = torch.tensor([[float("nan") if reward is None else reward] for reward in rewards])
    made._calculate_rewards = lambda *_: table
    return made._generate_and_score_completions([{"prompt": "", "index": 0}] * len(completions))


def our_inputs(given: Tokens, *, is_sampler: bool = False, is_first_step: bool = False) -> LossInputs:
    """The same tokens flat. mu is old, the anchor of TRL's ratio; with `is_sampler` mu is the sampler and prox is old;
    with `is_first_step` there is no prox but pi."""
    mask = torch.arange(given.pi.shape[1]) <= _last(given.mask).unsqueeze(1)
    flat = mask.flatten().nonzero().squeeze(1)
    batch, length = given.pi.shape

    def select(values: Tensor) -> Tensor:
        return values.flatten()[flat]

    return LossInputs(
        trainer_logprobs_N=select(given.pi).clone().requires_grad_(),
        behaviour_logprobs_N=select(given.sampler if is_sampler else given.old),
        prox_logprobs_N=None if is_first_step else select(given.old),
        ref_logprobs_N=select(given.ref),
        advantages_N=select(given.advantages_B.unsqueeze(1).expand(batch, length)),
        loss_mask_N=select(given.mask),
        sequences=Sequences(
            sequence_N=select(torch.arange(batch).unsqueeze(1).expand(batch, length)),
            num_sequences=batch,
            num_loss_sequences=given.num_loss_sequences,
        ),
    )


def ours(objective: Objective, given: Tokens, **anchors: bool) -> tuple[float, Tensor]:
    """(value, gradient at pi [B, T]) of our loss on the same tokens."""
    inputs = our_inputs(given, **anchors)
    value = objective(inputs, given.num_loss_tokens).loss
    value.backward()
    leaf = inputs.trainer_logprobs_N
    assert leaf.grad is not None
    gradient = torch.zeros_like(given.pi)
    gradient[torch.arange(given.pi.shape[1]) <= _last(given.mask).unsqueeze(1)] = leaf.grad
    return float(value.detach()), gradient


def _last(mask: Tensor) -> Tensor:
    """[B] index of the last loss token; rows without any still have their first token."""
    return (mask * torch.arange(mask.shape[1])).amax(dim=1)


def _environment() -> Environment:
    return load_environment("sort-digits", 0, {"num_digits": PROMPT_TOKENS - 1})
