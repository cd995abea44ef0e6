"""What an environment shows, as samples of the turns alone."""

import numpy as np
import pytest

from farflung.envs.base import Environment
from farflung.envs.episode import DemonstratesTurns
from farflung.envs.guess_letter import GuessLetter
from farflung.envs.named import named
from farflung.envs.playing import EpisodeLimits
from farflung.envs.sort_digits import SortDigits
from farflung.envs.take_away import TakeAway
from farflung.errors import OurFault, UserError
from farflung.model.characters import character_tokenizer
from farflung.rl.types import TrainingSample
from farflung.trainer.demonstrations import demonstrate

EOS = 1


def shown(environment: Environment, draw: int = 0, max_completion_tokens: int = 60) -> list[TrainingSample]:
    alphabet = environment.alphabet()
    assert alphabet is not None
    limits = EpisodeLimits(
        max_prompt_tokens=9, max_completion_tokens=max_completion_tokens, eos_token_ids=frozenset([EOS])
    )
    return demonstrate(environment, character_tokenizer(alphabet), limits, EOS, draw)


def test_of_a_game_each_side_is_a_sample_and_only_its_moves_are_learned() -> None:
    game = TakeAway(0, {})
    tokenizer = character_tokenizer(game.alphabet())
    first, second = shown(game, draw=5)
    assert (first.sample, second.sample, first.group, second.group) == (0, 1, 5, 5)
    for sample in (first, second):
        completion = sample.tokens[sample.num_prompt_tokens :]
        learned = tokenizer.decode(completion[sample.loss_mask].tolist(), skip_special=False)
        assert set(learned.replace("⟨eos⟩", "")) <= set("123")
        told = tokenizer.decode(completion[~sample.loss_mask].tolist(), skip_special=False)
        assert set(told) <= set("0123456789:")
        assert told.endswith(":")


def test_a_single_turn_is_learned_whole() -> None:
    (sample,) = shown(SortDigits(0, {}))
    assert sample.loss_mask.all()
    assert sample.tokens[-1] == EOS


def test_demonstrations_differ_by_draw_and_repeat_by_it() -> None:
    guessing = GuessLetter(0, {})
    tokens = [shown(guessing, draw)[0].tokens.tolist() for draw in range(6)]
    assert len({tuple(each) for each in tokens}) > 3
    assert shown(guessing, 2)[0].tokens.tolist() == tokens[2]


def test_without_demonstrations_it_says_what_to_set() -> None:
    class Silent(GuessLetter):
        def demonstrate_turn(self, *_args: object) -> None:  # type: ignore[override]
            return None

    with pytest.raises(UserError, match=r"trainer\.warm_start\.max_steps = 0"):
        shown(Silent(0, {}))


def test_a_prompt_that_does_not_fit_is_said() -> None:
    limits = EpisodeLimits(max_prompt_tokens=1, max_completion_tokens=9, eos_token_ids=frozenset([EOS]))
    game = TakeAway(0, {})
    with pytest.raises(OurFault, match="cannot play"):
        demonstrate(game, character_tokenizer(game.alphabet()), limits, EOS, 0)


def test_under_its_name_an_environment_shows_the_same() -> None:
    wrapped = named(TakeAway(0, {}))
    assert isinstance(wrapped, DemonstratesTurns)
    for one, other in zip(shown(wrapped, 3), shown(TakeAway(0, {}), 3), strict=True):
        assert np.array_equal(one.tokens, other.tokens)
