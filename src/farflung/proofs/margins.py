"""Whether tokens were drawn: the verifier's own scores beside the claimed tokens.

    score_v   = log p_v + g_v                       g = Gumbel noise of (group, sample, position, v), `proofs.draws`
    margin    = max_v score_v - score_token         0 where the verifier draws the same token
    surprise  = sum(-log p_token - H) / sqrt(sum Var(-log p))          H, Var over v, at each token

Honest work on other hardware has another token at about 1 % of positions, by tiny margins; text that was not drawn
with this noise has large ones at most positions. The surprise of draws has mean 0, variance 1 and a light tail below
(no token is likelier than sure): text of a search, or of a surer model, lies there. Its tail above is heavy. Pure; it
does not know models or thresholds.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from farflung.proofs.draws import gumbel_noise

LEAST = -1e4
"""In place of the logprob of what cannot be drawn: its probability is 0 and its square finite."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Draws:
    """Of N tokens, float32 [N] each, on the CPU."""

    margins: Tensor
    logprobs: Tensor
    entropies: Tensor
    """Nats."""
    variances: Tensor
    """Of -log p of a token that is drawn."""

    @staticmethod
    def concatenated(parts: "list[Draws]") -> "Draws":
        return Draws(
            margins=torch.cat([part.margins for part in parts]),
            logprobs=torch.cat([part.logprobs for part in parts]),
            entropies=torch.cat([part.entropies for part in parts]),
            variances=torch.cat([part.variances for part in parts]),
        )

    def part(self, start: int, end: int) -> "Draws":
        return Draws(
            margins=self.margins[start:end],
            logprobs=self.logprobs[start:end],
            entropies=self.entropies[start:end],
            variances=self.variances[start:end],
        )


def examine(logits_NV: Tensor, keys_N2: Tensor, tokens_N: Tensor) -> Draws:
    """The tokens beside what the verifier would have drawn there.

    Args:
        logits_NV: float32, divided by the temperature, reserved ids at -inf; overwritten.
        keys_N2: int32 position keys (`proofs.draws.position_keys`).
        tokens_N: int64; a reserved one has an infinite margin.
    """
    tokens_N1 = tokens_N.unsqueeze(-1)
    log_p = torch.log_softmax(logits_NV, dim=-1)
    logprobs = log_p.gather(-1, tokens_N1).squeeze(-1)
    noise = gumbel_noise(keys_N2, logits_NV.shape[-1])
    scores = torch.add(log_p, noise, out=logits_NV)
    claimed = scores.gather(-1, tokens_N1).squeeze(-1)
    margins = scores.amax(dim=-1) - claimed
    p = log_p.exp()
    log_p.clamp_(min=LEAST)  # 0 * -inf is not 0
    weighted = p.mul_(log_p)
    entropies = -weighted.sum(dim=-1)
    second = weighted.mul_(log_p).sum(dim=-1)
    return Draws(
        margins=margins.cpu(),
        logprobs=logprobs.cpu(),
        entropies=entropies.cpu(),
        variances=(second - entropies.square()).clamp_(min=0).cpu(),
    )


def surprise(draws: Draws) -> float:
    """Standard deviations by which the tokens are less likely than drawn ones are on average; 0 if nothing varies."""
    variance = float(draws.variances.sum())
    if variance <= 0:
        return 0.0
    excess = float((-draws.logprobs - draws.entropies).sum())
    return excess / math.sqrt(variance)
