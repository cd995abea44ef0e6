"""Episodes through an engine: their draws are their own, however they are batched."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from farflung.engine.base import Completion, Engine, GroupRequest, SamplingParams
from farflung.engine.fake import FakeEngine
from farflung.engine.rounds import Seat, play
from farflung.engine.torch_engine import TorchEngine
from farflung.envs.episode import as_episodic
from farflung.envs.guess_letter import GuessLetter
from farflung.envs.playing import Episode, EpisodeLimits
from farflung.envs.take_away import TakeAway
from farflung.model.characters import character_tokenizer
from farflung.model.config import ModelConfig
from farflung.model.factory import random_state

GAME, GUESSING = TakeAway(0, {"max_pile": 9}), GuessLetter(0, {})
SEED = bytes(range(32))


class Watched(FakeEngine):
    """Remembers what was asked of it."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.calls: list[list[GroupRequest]] = []

    def generate(
        self, requests: Sequence[GroupRequest], params: SamplingParams, draw_seed: bytes, **options: Any
    ) -> list[Completion]:
        self.calls.append(list(requests))
        return super().generate(requests, params, draw_seed, **options)


def seats_of(environment: TakeAway | GuessLetter, groups: Sequence[int], num_samples: int) -> list[Seat]:
    tokenizer = character_tokenizer(environment.alphabet())
    limits = EpisodeLimits(
        max_prompt_tokens=9, max_completion_tokens=50, eos_token_ids=frozenset(tokenizer.eos_token_ids)
    )
    return [
        Seat(
            group=group,
            number=number,
            episode=Episode(tokenizer, as_episodic(environment), environment.task("train", group), limits),
        )
        for group in groups
        for number in range(num_samples)
    ]


def params_of(environment: TakeAway | GuessLetter) -> SamplingParams:
    tokenizer = character_tokenizer(environment.alphabet())
    return SamplingParams(
        max_completion_tokens=50,
        eos_token_ids=tokenizer.eos_token_ids,
        reserved_token_ids=tokenizer.reserved_token_ids,
    )


def rows(seats: Sequence[Seat]) -> dict[tuple[int, int], list[int]]:
    return {
        (seat.group, seat.sample_of(agent)): view.completion_tokens.tolist()
        for seat in seats
        for agent, view in enumerate(seat.episode.views)
    }


def torch_engine() -> Engine:
    config = ModelConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_layers=1, num_heads=2, num_kv_heads=2, head_dim=16,
        max_position_embeddings=128,
    )  # fmt: skip
    engine = TorchEngine(config, max_batch_rows=16)
    engine.load_weights(random_state(config, 0, std=0.2), 0)
    return engine


@pytest.mark.parametrize("environment", [GAME, GUESSING], ids=["game", "guesses"])
@pytest.mark.parametrize("make", [lambda: FakeEngine(64), torch_engine], ids=["fake", "torch"])
def test_an_episode_draws_the_same_alone_and_among_others(
    environment: TakeAway | GuessLetter, make: Callable[[], Engine]
) -> None:
    together = seats_of(environment, [0, 1, 2], 4)
    play(make(), together, params_of(environment), SEED)
    alone = [seat for seat in seats_of(environment, [1], 4) if seat.number == 2]
    play(make(), alone, params_of(environment), SEED)
    expected = rows(together)
    assert rows(alone) == {key: expected[key] for key in rows(alone)}
    assert len({tuple(row) for row in expected.values()}) > 6


def test_tokens_of_each_row_are_the_draws_of_its_sample_and_position() -> None:
    seats = seats_of(GUESSING, [0, 1], 3)
    play(FakeEngine(64), seats, params_of(GUESSING), SEED)
    prompt = np.zeros(1, dtype=np.int32)
    whole = FakeEngine(64).generate(
        [GroupRequest(group=group, prompt_tokens=prompt, num_samples=3) for group in (0, 1)],
        SamplingParams(
            max_completion_tokens=50, eos_token_ids=(), reserved_token_ids=params_of(GUESSING).reserved_token_ids
        ),
        SEED,
    )
    drawn = {(made.group, made.sample): made.tokens for made in whole}
    for seat in seats:
        (view,) = seat.episode.views
        for start, end in view.spans:
            expected = drawn[seat.group, seat.sample_of(0)][start:end]
            assert view.completion_tokens[start:end].tolist() == expected.tolist()


def test_logprobs_are_those_drawn_and_zero_where_nobody_drew() -> None:
    seats = seats_of(GAME, [0], 2)
    play(FakeEngine(64), seats, params_of(GAME), SEED)
    for seat in seats:
        for agent, view in enumerate(seat.episode.views):
            logprobs = seat.logprobs(agent)
            is_drawn = np.zeros(len(logprobs), dtype=bool)
            for start, end in view.spans:
                is_drawn[start:end] = True
            assert (logprobs[is_drawn] < 0).all()
            assert not logprobs[~is_drawn].any()


def test_the_first_prompt_of_a_group_is_read_once_and_a_round_is_one_call() -> None:
    engine = Watched(64)
    play(engine, seats_of(GAME, [0, 1], 8), params_of(GAME), SEED)
    first = engine.calls[0]
    assert [(request.group, request.num_samples, request.sample_stride) for request in first] == [(0, 8, 2), (1, 8, 2)]
    second = engine.calls[1]
    assert sum(request.num_samples for request in second) == 16
    assert {request.first_sample % 2 for request in second} == {1}
    assert {request.max_tokens for call in engine.calls for request in call} == {GAME.max_turn_tokens}
    assert len(engine.calls) <= GAME.max_turns
