"""What a pool refuses before it begins."""

from collections.abc import Mapping

import pytest

from farflung.envs.base import Environment, is_reproducible
from farflung.envs.budgeted import Budgeted
from farflung.envs.episode import Episodic
from farflung.envs.guess_letter import GuessLetter
from farflung.envs.mixture import Mixture
from farflung.envs.named import NamedEnvironment, named
from farflung.envs.playable import require_playable
from farflung.envs.registry import load_environment, load_for_grading
from farflung.envs.sort_digits import SortDigits
from farflung.envs.take_away import TakeAway
from farflung.errors import UserError
from farflung.model.characters import character_tokenizer
from farflung.model.conversation import rewrites_history
from farflung.model.tokenizer import Tokenizer
from farflung.wire.pool import EnvArg, EnvironmentSpec

CHATML = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + CONTENT + eos_token + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def tokenizer(content: str = "m.content") -> Tokenizer:
    files = dict(character_tokenizer("abc").files)
    return Tokenizer.from_files({**files, "chat_template.jinja": CHATML.replace("CONTENT", content).encode()})


@pytest.mark.parametrize(
    ("content", "rewrites"),
    [
        ("m.content", False),
        ("(m.content if loop.last else m.content.split('</think>')[-1])", True),
        ("(m.content if loop.last else m.content|replace('2', ''))", True),
    ],
)
def test_a_template_that_drops_what_was_said_is_noticed(content: str, rewrites: bool) -> None:  # T9
    assert rewrites_history(tokenizer(content)) is rewrites


def test_episodes_of_several_turns_need_a_template_that_grows() -> None:
    drops = tokenizer("(m.content if loop.last else m.content.split('</think>')[-1])")
    with pytest.raises(UserError, match="give the model a template that keeps them"):
        require_playable(GuessLetter(0, {}), drops)
    require_playable(GuessLetter(0, {}), tokenizer())
    require_playable(SortDigits(0, {}), drops)  # one turn


class Varies(GuessLetter):
    is_reproducible = False


class TooShort(TakeAway):
    max_turns = 1

    def __init__(self) -> None:
        super().__init__(0, {})
        self.max_turns = 1


def test_what_cannot_be_replayed_or_has_no_turn_for_everybody_is_refused() -> None:
    assert is_reproducible(GuessLetter(0, {}))
    assert not is_reproducible(Varies(0, {}))
    with pytest.raises(UserError, match="does not answer the same every time"):
        require_playable(Varies(0, {}), tokenizer())
    with pytest.raises(UserError, match="each agent needs a turn"):
        require_playable(TooShort(), tokenizer())


def test_a_mixture_has_members_of_one_turn() -> None:
    with pytest.raises(UserError, match="episodes of several turns"):
        load_environment("mixture", 0, {"members": "sort-digits, take-away"})


def test_a_pool_whose_rules_say_another_number_of_agents_is_not_graded() -> None:
    spec = EnvironmentSpec(name="take-away", num_tasks=33, num_agents=2)
    assert load_for_grading(spec).name == "take-away"
    with pytest.raises(UserError, match="has 2 agents here, and the pool's rules say 1"):
        load_for_grading(EnvironmentSpec(name="take-away", num_tasks=33))


def test_only_episodes_stay_episodes_under_their_name() -> None:
    assert isinstance(named(TakeAway(0, {})), Episodic)
    assert not isinstance(named(SortDigits(0, {})), Episodic)
    assert type(named(SortDigits(0, {}))) is NamedEnvironment


class Judged(SortDigits):
    """One turn, and a judge that may change its mind."""

    is_reproducible = False


def test_a_pool_refuses_one_turn_that_is_not_graded_the_same_every_time() -> None:
    judged = Judged(0, {})
    with pytest.raises(UserError, match="sort-digits says that it does not answer the same every time"):
        require_playable(judged, tokenizer())
    require_playable(judged, tokenizer(), is_replayed=False)  # run --local, eval


def test_no_wrapping_hides_that_grades_differ() -> None:
    def load(name: str, seed: int, args: Mapping[str, EnvArg]) -> Environment:
        return Judged(seed, args) if name == "judged" else load_environment(name, seed, args)

    assert not is_reproducible(named(Judged(0, {})))
    assert not is_reproducible(Mixture(0, {"members": "sort-digits, judged"}, load))
    assert not is_reproducible(Budgeted("judged", 0, {"budget.targets": "8,16"}, load))
    assert is_reproducible(Mixture(0, {"members": "sort-digits, mod-sum"}, load))
