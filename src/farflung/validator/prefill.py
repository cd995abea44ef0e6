"""The validator's own computation: a packed forward pass over claimed tokens, and what the claims look like beside it.

    tokens -> states that predict each token -> commitment                       beside the claimed one
                                             -> logits, in blocks -> margins, logprobs, surprise

Prompts that rollouts of a group share are computed once, and rollouts of many submissions share a pass. Logits are
never held for more than a block of tokens. This module does not know files, leases or thresholds.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.errors import OurFault
from farflung.model.batch_layout import predicting_states
from farflung.model.build import AnyDecoder
from farflung.model.head import MAX_LOGITS_PER_CHUNK, next_token_logits, vocabulary_mask
from farflung.proofs import draws
from farflung.proofs.margins import Draws, examine, surprise
from farflung.proofs.scheme import compare
from farflung.rl.batch import FlatBatch, flatten
from farflung.rl.packing import split_micro_batches
from farflung.rl.types import TrainingSample
from farflung.slots.noise import row_keys
from farflung.validator.messages import ClaimedRow
from farflung.wire.lease import Lease
from farflung.wire.proof import RolloutFigures, Scheme
from farflung.wire.rollout import Rollout, StopReason

MICRO_BATCH_TOKENS = 4096
"""Forward tokens of a pass, unless one rollout is longer."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Claim:
    """A rollout that passed every cheap check."""

    rollout: Rollout
    spans: tuple[tuple[int, int], ...]
    """(start, end) of the parts of its completion that the model is to have drawn."""
    draw_seed: bytes
    slot: int = 0

    @property
    def is_drawn(self) -> NDArray[np.bool_]:
        """[T] True where the model is to have drawn the token."""
        mask_T = np.zeros(len(self.rollout.completion_tokens), dtype=np.bool_)
        for start, end in self.spans:
            mask_T[start:end] = True
        return mask_T


def claim_of(row: ClaimedRow, lease: Lease) -> Claim:
    """A row that the judging process read, under its lease.

    Raises:
        OurFault: it is no row of a file that passed the checks.
    """
    try:
        rollout = Rollout(
            env="",
            task_id="",
            group=row.group,
            sample=row.sample,
            prompt_tokens=np.frombuffer(row.prompt_tokens, dtype="<i4"),
            completion_tokens=np.frombuffer(row.completion_tokens, dtype="<i4"),
            logprobs=np.frombuffer(row.logprobs, dtype="<f4"),
            stop_reason=StopReason.LENGTH,
            policy_version=lease.policy_version,
            proof=row.proof,
        )
    except ValueError as error:
        raise OurFault(f"the judging process told of a row that is none: {error}") from error
    return Claim(rollout=rollout, spans=row.spans, draw_seed=bytes.fromhex(lease.draw_seed), slot=lease.slot)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefillParams:
    """How the pool samples, and commits to states."""

    temperature: float
    reserved_token_ids: tuple[int, ...]
    scheme: Scheme = "sketch"
    micro_batch_tokens: int = MICRO_BATCH_TOKENS


@torch.no_grad()
def figures_of(decoder: AnyDecoder, claims: Sequence[Claim], params: PrefillParams) -> list[RolloutFigures]:
    """One per claim, in their order.

    Raises:
        OurFault: this version computes nothing here: a state is not finite.
    """
    samples = [_sample(number, claim) for number, claim in enumerate(claims)]
    longest = max((sample.num_forward_tokens for sample in samples), default=1)
    figures: dict[int, RolloutFigures] = {}
    for part in split_micro_batches(samples, max(params.micro_batch_tokens, longest)):
        batch = flatten(part).to(decoder.lm_head_weight.device)
        hidden_MD = predicting_states(decoder, batch)
        own = [claims[sample.sample] for sample in part]
        counts = [sample.num_loss_tokens for sample in part]
        drawn = torch.nonzero(batch.loss_mask_M).squeeze(-1)
        hidden_KD = hidden_MD.index_select(0, drawn)
        if not torch.isfinite(hidden_KD).all():
            raise OurFault("a state is not finite: nothing can be compared with it")
        examined = _examined(decoder, hidden_KD, _targets(batch, drawn), _keys(own, hidden_KD.device), params)
        starts = np.cumsum([0, *counts])
        for sample, claim, start, end in zip(part, own, starts[:-1], starts[1:], strict=True):
            part_of_it = examined.part(int(start), int(end))
            figures[sample.sample] = _figures(claim, hidden_KD[start:end], part_of_it, params.scheme)
    return [figures[number] for number in range(len(claims))]


def _sample(number: int, claim: Claim) -> TrainingSample:
    """As a document of a packed batch; nothing is learned from it."""
    rollout = claim.rollout
    nothing_T = np.zeros(len(rollout.completion_tokens), dtype=np.float32)
    return TrainingSample(
        tokens=np.concatenate((rollout.prompt_tokens, rollout.completion_tokens)),
        num_prompt_tokens=len(rollout.prompt_tokens),
        behaviour_logprobs=nothing_T,
        advantages=nothing_T,
        loss_mask=claim.is_drawn,
        policy_version=rollout.policy_version,
        slot=claim.slot,
        group=rollout.group,
        sample=number,
    )


def _targets(batch: FlatBatch, drawn: Tensor) -> Tensor:
    return batch.targets_M.index_select(0, drawn)


def _keys(claims: Sequence[Claim], device: torch.device) -> Tensor:
    """int32 [K, 2] position keys of every drawn token."""
    keys = []
    for claim in claims:
        row = row_keys(claim.draw_seed, [(claim.rollout.group, claim.rollout.sample)])
        positions = torch.from_numpy(np.flatnonzero(claim.is_drawn))
        keys.append(draws.position_keys(torch.from_numpy(row), positions))
    return torch.cat(keys).to(device)


def _examined(
    decoder: AnyDecoder, hidden_KD: Tensor, tokens_K: Tensor, keys_K2: Tensor, params: PrefillParams
) -> Draws:
    weights = decoder.lm_head_weight
    mask_V = vocabulary_mask(len(weights), params.reserved_token_ids, hidden_KD.device)
    block = max(1, MAX_LOGITS_PER_CHUNK // len(weights))
    parts = []
    for hidden, tokens, keys in zip(hidden_KD.split(block), tokens_K.split(block), keys_K2.split(block), strict=True):
        logits = next_token_logits(hidden, weights, temperature=params.temperature, mask_V=mask_V)
        parts.append(examine(logits, keys, tokens))
    return Draws.concatenated(parts)


def _figures(claim: Claim, hidden_KD: Tensor, examined: Draws, scheme: Scheme) -> RolloutFigures:
    rollout = claim.rollout
    num_tokens = len(hidden_KD)
    if not num_tokens:  # an episode that the environment failed: it has no reward, and nothing is held against it
        return RolloutFigures.nothing(rollout.group, rollout.sample)
    compared = compare(scheme, rollout.proof, hidden_KD, claim.draw_seed, rollout.group, rollout.sample)
    logprobs_T = np.zeros(len(rollout.completion_tokens), dtype=np.float32)
    logprobs_T[claim.is_drawn] = examined.logprobs.numpy()
    errors = np.abs(logprobs_T - rollout.logprobs)
    return RolloutFigures(
        group=rollout.group,
        sample=rollout.sample,
        num_tokens=num_tokens,
        activation_chunks=compared.distances,
        max_margin=float(examined.margins.max()),
        sum_margin=float(examined.margins.sum()),
        num_margins=int((examined.margins > 0).sum()),
        surprise=surprise(examined),
        logprob_error=float(errors.max()),
        least_forgery=min(compared.forgeries),
        logprobs=base64.b64encode(logprobs_T.astype("<f4").tobytes()).decode(),
    )
