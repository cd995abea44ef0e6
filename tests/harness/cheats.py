"""Ways not to do the work of `sampled_work`: other computations, and texts that were not drawn.

A computation gives rows as a worker with it would hand them in; a text is run through the true policy, so that its
states are true.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import chain

import torch
from torch import Tensor

from farflung.model.build import AnyDecoder
from farflung.model.decoder import Decoder, DecoderLayer
from farflung.model.factory import random_state
from farflung.model.head import next_token_logits, vocabulary_mask
from farflung.model.layout import SequenceLayout
from farflung.proofs.draws import gumbel_noise, position_keys
from farflung.proofs.scheme import build
from farflung.slots.noise import row_keys
from farflung.wire.rollout import Rollout
from sampled_work import CONFIG, EOS, PARAMS, RESERVED, SEED, State, decoder_of, honest, policy, sampled, verifier


def noisy(size: float, seed: int = 0) -> State:
    """The policy with every matrix changed by so much of its standard deviation."""
    generator = torch.Generator().manual_seed(seed)

    def change(weight: Tensor) -> Tensor:
        return weight + size * weight.std() * torch.randn(weight.shape, generator=generator)

    return {name: change(weight) if weight.ndim == 2 else weight for name, weight in policy().items()}


@cache
def decoder_with_fp8_cache() -> AnyDecoder:
    """The true policy, with keys and values kept in float8 e4m3."""
    decoder = decoder_of(policy())
    assert isinstance(decoder, Decoder)
    for layer in decoder.layers:
        assert isinstance(layer, DecoderLayer)
        layer.heads = partial(_heads_with_fp8_cache, layer, layer.heads)  # type: ignore[method-assign]
    return decoder


def _heads_with_fp8_cache(
    layer: DecoderLayer, heads: Callable[[Tensor, Tensor | None], Tensor], hidden_ND: Tensor, rotation_Nc: Tensor | None
) -> Tensor:
    query, key, value = layer.split_heads(heads(hidden_ND, rotation_Nc), dim=1)
    kept = [part.to(torch.float8_e4m3fn).to(part.dtype) for part in (key, value)]
    return torch.cat((query, *kept), dim=1)


def computed_by(decoder: AnyDecoder, row: Rollout) -> Rollout:
    """The tokens of a row with logprobs and proof of another computation."""
    document = torch.tensor([*row.prompt_tokens.tolist(), *row.completion_tokens[:-1].tolist()])
    states_TD = decoder(document, SequenceLayout.from_lengths([len(document)]))[len(row.prompt_tokens) - 1 :]
    scores = torch.log_softmax(_logits(decoder, states_TD), -1)
    tokens_T1 = torch.from_numpy(row.completion_tokens).long().unsqueeze(-1)
    return replace(
        row,
        logprobs=scores.gather(-1, tokens_T1).squeeze(-1).numpy(),
        proof=build("sketch", states_TD, SEED, row.group, row.sample),
    )


Pick = Callable[[Tensor, Tensor], int]
"""(logprobs [V] of the policy, its Gumbel noise [V]) -> the token."""


def picked(row: Rollout, pick: Pick) -> list[int]:
    """A completion chosen token by token until an end or the limit, with the noise at hand that was to draw it."""
    return _all_picked(pick)[row.group, row.sample]


@cache
def _all_picked(pick: Pick) -> dict[tuple[int, int], list[int]]:
    """Of every row of the slot, side by side."""
    rows = honest()
    places = [(row.group, row.sample) for row in rows]
    keys_N12 = torch.from_numpy(row_keys(SEED, places)).unsqueeze(1)
    keys_NT2 = position_keys(keys_N12, torch.arange(PARAMS.max_completion_tokens))
    texts: list[list[int]] = [[] for _ in rows]
    live = list(range(len(rows)))
    for position in range(PARAMS.max_completion_tokens):
        documents = [[*rows[at].prompt_tokens.tolist(), *texts[at]] for at in live]
        lengths = [len(document) for document in documents]
        states = verifier()(torch.tensor(list(chain.from_iterable(documents))), SequenceLayout.from_lengths(lengths))
        last = torch.tensor(lengths).cumsum(0) - 1
        logprobs_nV = torch.log_softmax(_logits(verifier(), states[last]), -1)
        noise_nV = gumbel_noise(keys_NT2[live, position], logprobs_nV.shape[-1])
        for at, logprobs, noise in zip(live, logprobs_nV, noise_nV, strict=True):
            texts[at].append(pick(logprobs, noise))
        live = [at for at in live if texts[at][-1] not in EOS]
        if not live:
            break
    return dict(zip(places, texts, strict=True))


def _logits(decoder: AnyDecoder, states_TD: Tensor) -> Tensor:
    mask_V = vocabulary_mask(CONFIG.vocab_size, RESERVED)
    return next_token_logits(states_TD, decoder.lm_head_weight, temperature=PARAMS.temperature, mask_V=mask_V)


def draw(logprobs: Tensor, noise: Tensor) -> int:
    """What honest workers do."""
    return int((logprobs + noise).argmax())


def likeliest(logprobs: Tensor, noise: Tensor) -> int:
    return int(logprobs.argmax())


def within_top_p(logprobs: Tensor, noise: Tensor, share: float = 0.9) -> int:
    """Drawn, but among the likeliest tokens alone."""
    order = logprobs.argsort(descending=True)
    before = logprobs[order].exp().cumsum(0) - logprobs[order].exp()
    kept = order[before < share]
    return int(kept[(logprobs + noise)[kept].argmax()])


def relaxed_acceptance(logprobs: Tensor, noise: Tensor, least: float = 0.05) -> int:
    """Speculative decoding that keeps any guess which the policy finds likely enough.

    The guess is the likeliest token, which is what a good draft model proposes.
    """
    guess = likeliest(logprobs, noise)
    return guess if logprobs[guess].exp() >= least else draw(logprobs, noise)


def exact_speculation(logprobs: Tensor, noise: Tensor) -> int:
    """Speculative decoding as it should be: a guess is kept where it is the draw."""
    guess = likeliest(logprobs, noise)
    drawn = draw(logprobs, noise)
    return guess if guess == drawn else drawn


@cache
def steered(reach: float) -> Pick:
    """The furthest token within reach of the draw."""

    def pick(logprobs: Tensor, noise: Tensor) -> int:
        scores = logprobs + noise
        within = torch.nonzero(scores >= scores.max() - reach).squeeze(-1)
        return int(within[scores[within].argmin()])

    return pick


@cache
def texts_of(number: int) -> dict[tuple[int, int], list[int]]:
    """What another model draws on the same prompts, by (group, sample)."""
    made = sampled(random_state(CONFIG, number, std=0.25))
    return {(each.group, each.sample): each.tokens.tolist() for each in made}


def teacher_text(row: Rollout) -> list[int]:
    return texts_of(9)[row.group, row.sample]


def cut_short(row: Rollout) -> list[int]:
    return [*row.completion_tokens[:5].tolist(), EOS[0]]


def never_ending(row: Rollout) -> list[int]:
    """Goes on to the limit where the end was drawn."""
    tokens = [token if token != EOS[0] else 40 for token in row.completion_tokens.tolist()]
    padding = [17] * PARAMS.max_completion_tokens
    return [*tokens, *padding][: PARAMS.max_completion_tokens]


def with_an_answer_in_front(row: Rollout) -> list[int]:
    return [10, 11, 12, *row.completion_tokens.tolist()][: PARAMS.max_completion_tokens]


def of_another_sample(row: Rollout) -> list[int]:
    rows = {(each.group, each.sample): each for each in honest()}
    tokens: list[int] = rows[row.group, (row.sample + 1) % 4].completion_tokens.tolist()
    return tokens


def best_of(num_tries: int, is_better: Callable[[list[int]], float]) -> dict[tuple[int, int], list[int]]:
    """For each place the best of several honest draws, all but the first with seeds of one's own."""
    tries = [sampled(draw_seed=bytes([number]) * 32) if number else sampled() for number in range(num_tries)]
    places = [(each.group, each.sample) for each in tries[0]]
    found = {}
    for at, place in enumerate(places):
        found[place] = max((made[at].tokens.tolist() for made in tries), key=is_better)
    return found
