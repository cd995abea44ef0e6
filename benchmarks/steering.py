"""How much a worker can choose inside the tolerance: bits per token that margins and their mean leave.

    gap_tv   = max_u score_tu - score_tv                       score = log p + noise, of the verifier
    choices  = completions with every gap <= largest margin and sum of gaps <= tokens * mean margin
    log choices <= min over l >= 0 of  l * tokens * mean margin + sum_t log sum_{v: gap_tv <= largest} exp(-l gap_tv)

The bound is Chernoff's: every allowed completion adds at least exp(-l * budget) to the product of the inner sums. Gaps
are those along what was drawn; a completion that was steered goes on in another text with gaps like these.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from farflung.model.build import AnyDecoder
from farflung.model.head import next_token_logits, vocabulary_mask
from farflung.model.layout import SequenceLayout
from farflung.proofs.draws import gumbel_noise, position_keys
from farflung.slots.noise import row_keys
from farflung.wire.rollout import Rollout

MULTIPLIERS = (0.0, *(10 ** (step / 20) for step in range(-20, 121)))
"""Where the minimum is looked for: 0.1 to a million per unit of score."""


@torch.no_grad()
def gaps_of(
    decoder: AnyDecoder, rows: Sequence[Rollout], draw_seed: bytes, reserved: tuple[int, ...], reach: float
) -> list[Tensor]:
    """For each token of each row the gaps of all that lie within `reach` of its draw, the draw's own 0 among them."""
    mask_V = vocabulary_mask(len(decoder.lm_head_weight), reserved)
    found: list[Tensor] = []
    for row in rows:
        document = torch.tensor([*row.prompt_tokens.tolist(), *row.completion_tokens[:-1].tolist()])
        states = decoder(document, SequenceLayout.from_lengths([len(document)]))[len(row.prompt_tokens) - 1 :]
        logits = next_token_logits(states, decoder.lm_head_weight, temperature=1.0, mask_V=mask_V)
        keys = torch.from_numpy(row_keys(draw_seed, [(row.group, row.sample)]))
        noise = gumbel_noise(position_keys(keys, torch.arange(len(states))), logits.shape[-1])
        scores = torch.log_softmax(logits, -1).add_(noise)
        gaps = scores.amax(dim=-1, keepdim=True) - scores
        found += [each[each <= reach] for each in gaps]
    return found


def bits_per_token(gaps: Sequence[Tensor], mean_margin: float = math.inf) -> float:
    """Bits of choice per token, at most.

    Args:
        gaps: of each token those of its admissible alternatives, the draw's own 0 among them.
        mean_margin: budget per token; infinite = any choice within reach.
    """
    flat = torch.cat(list(gaps)).double()
    token = torch.repeat_interleave(torch.arange(len(gaps)), torch.tensor([len(each) for each in gaps]))

    def bound(multiplier: float) -> float:
        sums = torch.zeros(len(gaps), dtype=torch.float64).index_add_(0, token, torch.exp(-multiplier * flat))
        return float(sums.log().mean()) + (multiplier * mean_margin if multiplier else 0.0)

    return min(map(bound, MULTIPLIERS if math.isfinite(mean_margin) else (0.0,))) / math.log(2)
