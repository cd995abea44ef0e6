"""Draws examined: what was drawn has no margin, what was chosen has one; surprise has the moments that it claims."""

import numpy as np
import pytest
import torch
from torch import Tensor

from farflung.proofs.draws import draw, gumbel_noise, position_keys
from farflung.proofs.margins import Draws, examine, surprise
from farflung.slots.noise import row_keys

SEED = bytes(range(32))


def keys(count: int, seed: bytes = SEED) -> Tensor:
    return position_keys(torch.from_numpy(row_keys(seed, [(0, 0)])), torch.arange(count))


def logits(count: int, vocab_size: int = 50, seed: int = 0, sharpness: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(count, vocab_size, generator=generator) * sharpness
    made[:, 7] = -torch.inf  # reserved
    return made


def drawn(scores: Tensor, keys_N2: Tensor) -> Tensor:
    return draw(scores, gumbel_noise(keys_N2, scores.shape[-1]))[0]


def test_what_was_drawn_has_no_margin_and_its_own_logprob() -> None:
    scores = logits(200)
    tokens, logprobs = draw(scores, gumbel_noise(keys(200), 50))
    examined = examine(scores.clone(), keys(200), tokens)
    assert not examined.margins.any()
    assert torch.equal(examined.logprobs, logprobs)


def test_entropy_and_variance_are_those_of_the_distribution() -> None:
    scores = logits(20)
    examined = examine(scores.clone(), keys(20), torch.zeros(20, dtype=torch.int64))
    p = torch.softmax(scores.double(), dim=-1)
    information = torch.where(p > 0, -torch.log(p), torch.zeros(()).double())
    entropy = (p * information).sum(-1)
    variance = (p * (information - entropy.unsqueeze(-1)) ** 2).sum(-1)
    assert torch.allclose(examined.entropies.double(), entropy, atol=1e-5)
    assert torch.allclose(examined.variances.double(), variance, atol=1e-4)


def test_w10_draws_of_another_seed_have_margins_at_most_positions() -> None:
    scores = logits(1000, sharpness=1.0)
    tokens = drawn(scores, keys(1000, bytes(32)))
    examined = examine(scores.clone(), keys(1000), tokens)
    assert float((examined.margins > 0).float().mean()) > 0.5
    assert float(examined.margins.mean()) > 0.5


def test_a_reserved_token_is_infinitely_far() -> None:
    examined = examine(logits(3), keys(3), torch.full((3,), 7))
    assert torch.isinf(examined.margins).all()


@pytest.mark.parametrize("sharpness", [0.5, 2.0, 5.0])
def test_the_surprise_of_draws_has_mean_zero_and_variance_one(sharpness: float) -> None:
    count, length = 400, 50
    scores = logits(count * length, sharpness=sharpness)
    examined = examine(scores.clone(), keys(count * length), drawn(scores, keys(count * length)))
    values = np.array([surprise(examined.part(start, start + length)) for start in range(0, count * length, length)])
    assert abs(values.mean()) < 0.2
    assert values.std() == pytest.approx(1.0, abs=0.15)
    assert values.min() > -4.5, "the tail on the likely side is light"


def test_w5_the_likeliest_text_lies_far_on_the_likely_side() -> None:
    scores = logits(200, sharpness=1.0)
    examined = examine(scores.clone(), keys(200), scores.argmax(dim=-1))
    assert surprise(examined) < -15


def test_a_policy_that_is_always_sure_surprises_nobody() -> None:
    scores = torch.full((5, 10), -torch.inf)
    scores[:, 3] = 0.0
    examined = examine(scores.clone(), keys(5), torch.full((5,), 3))
    assert surprise(examined) == 0.0
    assert not examined.margins.any()


def test_blocks_make_no_difference() -> None:
    scores = logits(100)
    tokens = drawn(scores, keys(100, bytes(32)))
    whole = examine(scores.clone(), keys(100), tokens)
    blocks = [
        examine(part.clone(), block, token)
        for part, block, token in zip(scores.split(33), keys(100).split(33), tokens.split(33), strict=True)
    ]
    joined = Draws.concatenated(blocks)
    assert torch.allclose(joined.margins, whole.margins, atol=1e-6)
    assert torch.equal(joined.logprobs, whole.logprobs)
