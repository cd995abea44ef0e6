"""A rollout sampled again from its draw seed, token by token, as a worker does it: the dear check.

    prompt + draws -> tokens      compared with the claimed ones, exactly
    first difference at t         how far the claimed token lies below the drawn one there (its margin, on the states of
                                  this second computation); then on from the claimed text

The packed pass over claimed tokens (`validator.prefill`) sees the same draws, so honest work that passes there has few
differences and small ones here. This is another way through the model (keys and values kept, one token at a time), so
that no mistake in one of the two lets anybody through. Does not know files or thresholds.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from farflung.engine.base import GroupRequest, SamplingParams
from farflung.engine.rows_of import rows_of
from farflung.engine.run import Run
from farflung.model.build import AnyDecoder
from farflung.model.head import next_token_logits, vocabulary_mask
from farflung.proofs import draws
from farflung.proofs.margins import examine
from farflung.slots.noise import row_keys
from farflung.validator.prefill import Claim, PrefillParams
from farflung.wire.proof import Resampled

MAX_DIFFERENCES = 16
"""After so many the rest is not compared: each costs a pass over what came before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """What was drawn from one place on."""

    tokens: NDArray[np.int32]
    states: NDArray[np.float32]


def sample_again(decoder: AnyDecoder, claim: Claim, params: PrefillParams, eos_token_ids: tuple[int, ...]) -> Resampled:
    """Every part of the completion that the model is to have drawn.

    Raises:
        OurFault: the version gives logits that are not finite.
    """
    num_tokens = num_differences = 0
    largest = 0.0
    claimed = claim.rollout.completion_tokens
    for start, end in claim.spans:
        place = start
        while place < end and num_differences <= MAX_DIFFERENCES:
            part = _drawn(decoder, claim, params, eos_token_ids, place, end)
            wanted = claimed[place : place + len(part.tokens)]
            differs = np.flatnonzero(part.tokens != wanted)
            if not len(differs):
                num_tokens += len(part.tokens)
                place += len(part.tokens)
                continue
            first = int(differs[0])
            num_differences += 1
            num_tokens += first + 1
            margin = _margin(decoder, claim, params, part.states[first], place + first)
            largest = max(largest, margin)
            place += first + 1
    return Resampled(num_tokens=num_tokens, num_differences=num_differences, max_margin=largest)


def _drawn(
    decoder: AnyDecoder, claim: Claim, params: PrefillParams, eos_token_ids: tuple[int, ...], start: int, end: int
) -> _Part:
    """Tokens `start` .. `end` of the completion at most, after the claimed text before them."""
    rollout = claim.rollout
    request = GroupRequest(
        group=rollout.group,
        prompt_tokens=np.concatenate((rollout.prompt_tokens, rollout.completion_tokens[:start])),
        num_samples=1,
        first_sample=rollout.sample,
        first_position=start,
    )
    sampling = SamplingParams(
        temperature=params.temperature,
        max_completion_tokens=end - start,
        eos_token_ids=eos_token_ids,
        reserved_token_ids=params.reserved_token_ids,
    )
    with torch.inference_mode():
        rows = rows_of(decoder)
        rows.fit(1, len(request.prompt_tokens) + end - start)
        run = Run(rows, [request], sampling, claim.draw_seed, num_rows=1, with_hidden=True)
        while run.step():
            pass
        (completion,) = run.completions()
    assert completion.hidden is not None, "asked for"
    return _Part(tokens=completion.tokens, states=completion.hidden)


def _margin(
    decoder: AnyDecoder, claim: Claim, params: PrefillParams, state_D: NDArray[np.float32], position: int
) -> float:
    """How far the claimed token at a position lies below the one that these draws give."""
    rollout, head = claim.rollout, decoder.lm_head_weight
    state = torch.from_numpy(state_D).to(head.device, head.dtype).unsqueeze(0)
    mask_V = vocabulary_mask(len(head), params.reserved_token_ids, head.device)
    logits = next_token_logits(state, head, temperature=params.temperature, mask_V=mask_V)
    keys = draws.position_keys(
        torch.from_numpy(row_keys(claim.draw_seed, [(rollout.group, rollout.sample)])), torch.tensor([position])
    )
    token = torch.tensor([int(rollout.completion_tokens[position])], device=head.device)
    with torch.no_grad():
        examined = examine(logits, keys.view(1, 2).to(head.device), token)
    return float(examined.margins.max())
