"""Padding-free batches: documents end to end, and which positions predict which completion tokens.

    tokens   p p p c c | p p c c c | d d | ...     each document without its last token, which predicts nothing needed
    rows         ^ ^ ^     ^ ^ ^ ^   ^ ^           hidden rows P-1 .. P+T-2 of each predict its T completion tokens

Rollouts of one group share their prompt: the first document has it, those after it begin with a prefix that lies in the
first (`d d` continues `p p`, from where its first completion token is predicted).

Shapes: N forward tokens, M completion tokens over all documents. The batch does not know the model; a decoder takes the
flat tokens with the document lengths and prefixes and keeps documents apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.rl.sequences import Sequences
from farflung.rl.types import TrainingSample


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class FlatBatch:
    """One micro-batch as tensors."""

    tokens_N: Tensor
    """[N] int64."""
    lengths: tuple[int, ...]
    """Own forward tokens of each document; they sum to N."""
    prefix_starts: tuple[int, ...]
    """Where in `tokens_N` the prefix of each document begins."""
    prefix_lengths: tuple[int, ...]
    """Its tokens; 0 for a document that has all of its own."""
    rows_M: Tensor
    """[M] int64: the row of `tokens_N` whose hidden state predicts each completion token."""
    targets_M: Tensor
    """[M] int64, the completion tokens; in place of those that nothing is learned from one that something is."""
    behaviour_logprobs_M: Tensor
    """[M] float32."""
    advantages_M: Tensor
    """[M] float32."""
    loss_mask_M: Tensor
    """[M] bool."""
    sequence_M: Tensor
    """[M] int64, position of each token's document in the micro-batch."""
    group_log_expectation_M: Tensor | None
    """[M] float32 (`TrainingSample.group_log_expectation`); None if a sample has none."""
    prox_logprobs_M: Tensor | None = None
    """[M] float32, of the policy when its version began; None = this is that moment."""
    ref_logprobs_M: Tensor | None = None
    """[M] float32 (`TrainingSample.ref_logprobs`); None if a sample has none."""

    def sequences(self, num_loss_sequences: int) -> Sequences:
        """The document index.

        Args:
            num_loss_sequences: of the whole optimizer step (`count_loss_sequences`).
        """
        return Sequences(
            sequence_N=self.sequence_M, num_sequences=len(self.lengths), num_loss_sequences=num_loss_sequences
        )

    def to(self, device: torch.device | str) -> "FlatBatch":
        expectation_M, prox_M, ref_M = self.group_log_expectation_M, self.prox_logprobs_M, self.ref_logprobs_M
        return replace(
            self,
            tokens_N=self.tokens_N.to(device),
            rows_M=self.rows_M.to(device),
            targets_M=self.targets_M.to(device),
            behaviour_logprobs_M=self.behaviour_logprobs_M.to(device),
            advantages_M=self.advantages_M.to(device),
            loss_mask_M=self.loss_mask_M.to(device),
            sequence_M=self.sequence_M.to(device),
            group_log_expectation_M=None if expectation_M is None else expectation_M.to(device),
            prox_logprobs_M=None if prox_M is None else prox_M.to(device),
            ref_logprobs_M=None if ref_M is None else ref_M.to(device),
        )


def flatten(samples: Sequence[TrainingSample]) -> FlatBatch:
    """Lay the samples end to end, in order, on the CPU.

    Raises:
        ValueError: no samples.
    """
    if not samples:
        raise ValueError("no samples: a micro-batch needs at least one")
    prompts_S = np.array([sample.num_prompt_tokens for sample in samples])
    completions_S = np.array([sample.num_completion_tokens for sample in samples])
    owner_S = _prompt_owners(samples)
    prefixes_S = np.where(owner_S == np.arange(len(samples)), 0, prompts_S)
    lengths_S = prompts_S + completions_S - 1 - prefixes_S
    starts_S = np.cumsum(lengths_S) - lengths_S
    prompt_ends_S = starts_S[owner_S] + prompts_S
    rows_M = _rows(prompt_ends_S, np.where(prefixes_S, starts_S, prompt_ends_S), completions_S)
    own_tokens = [sample.tokens[prefix:-1] for sample, prefix in zip(samples, prefixes_S, strict=True)]
    return FlatBatch(
        tokens_N=torch.from_numpy(np.concatenate(own_tokens).astype(np.int64)),
        lengths=tuple(lengths_S.tolist()),
        prefix_starts=tuple(starts_S[owner_S].tolist()),
        prefix_lengths=tuple(prefixes_S.tolist()),
        rows_M=torch.from_numpy(rows_M),
        targets_M=torch.from_numpy(np.concatenate([_targets(sample) for sample in samples]).astype(np.int64)),
        behaviour_logprobs_M=torch.from_numpy(np.concatenate([sample.behaviour_logprobs for sample in samples])),
        advantages_M=torch.from_numpy(np.concatenate([sample.advantages for sample in samples])),
        loss_mask_M=torch.from_numpy(np.concatenate([sample.loss_mask for sample in samples])),
        sequence_M=torch.from_numpy(np.repeat(np.arange(len(samples)), completions_S)),
        group_log_expectation_M=_group_log_expectation(samples, completions_S),
        ref_logprobs_M=_ref_logprobs(samples),
    )


def _targets(sample: TrainingSample) -> NDArray[np.int32]:
    """Between turns a template may write ids that are never drawn, whose logprob of -inf no mask takes out of a sum."""
    tokens_T, mask_T = sample.tokens[sample.num_prompt_tokens :], sample.loss_mask
    return tokens_T if mask_T.all() else np.where(mask_T, tokens_T, tokens_T[mask_T.argmax()])


def _prompt_owners(samples: Sequence[TrainingSample]) -> NDArray[np.int64]:
    """The first sample of each run of samples of one group with the same prompt."""
    owners = [0]
    for index in range(1, len(samples)):
        owners.append(owners[-1] if has_same_prompt(samples[owners[-1]], samples[index]) else index)
    return np.array(owners)


def has_same_prompt(one: TrainingSample, other: TrainingSample) -> bool:
    """Two rollouts of a group whose prompts agree; looks at groups first, since most pairs differ there."""
    if (one.slot, one.group, one.num_prompt_tokens) != (other.slot, other.group, other.num_prompt_tokens):
        return False
    count = one.num_prompt_tokens  # bytes: for the few tokens of a prompt ten times as fast as `np.array_equal`
    return one.tokens[:count].tobytes() == other.tokens[:count].tobytes()


def _rows(
    prompt_ends_S: NDArray[np.int64], seconds_S: NDArray[np.int64], completions_S: NDArray[np.int64]
) -> NDArray[np.int64]:
    """[M] the last row of the prompt, then one row for each completion token but the last, from `seconds_S` on."""
    first_targets_S = np.cumsum(completions_S) - completions_S
    rows_M = np.repeat(seconds_S - first_targets_S - 1, completions_S) + np.arange(completions_S.sum())
    rows_M[first_targets_S] = prompt_ends_S - 1
    return rows_M


def _group_log_expectation(samples: Sequence[TrainingSample], completions_S: NDArray[np.int64]) -> Tensor | None:
    known = [sample.group_log_expectation for sample in samples if sample.group_log_expectation is not None]
    if len(known) < len(samples):
        return None
    return torch.from_numpy(np.repeat(np.array(known, dtype=np.float32), completions_S))


def _ref_logprobs(samples: Sequence[TrainingSample]) -> Tensor | None:
    known = [sample.ref_logprobs for sample in samples if sample.ref_logprobs is not None]
    return torch.from_numpy(np.concatenate(known)) if len(known) == len(samples) else None


def count_loss_tokens(samples: Sequence[TrainingSample]) -> int:
    """N of the loss: trainable tokens of the whole optimizer step. Counted once, before it is split."""
    return sum(sample.num_loss_tokens for sample in samples)


def count_loss_sequences(samples: Sequence[TrainingSample]) -> int:
    """S of the loss: samples of the whole optimizer step that have a trainable token."""
    return sum(sample.num_loss_tokens > 0 for sample in samples)
