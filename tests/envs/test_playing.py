"""Episodes over all shapes: what is played can be replayed, and nothing else can."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.envs.base import Grade
from farflung.envs.episode import AgentTurn, Ask, EpisodeGrade, Episodic, SingleTurn, as_episodic
from farflung.envs.playing import Ending, Episode, EpisodeFault, EpisodeLimits, View
from farflung.envs.replay import Claim, replay
from farflung.envs.sort_digits import SortDigits
from farflung.model.characters import character_tokenizer
from farflung.model.tokenizer import Tokenizer
from farflung.wire.task import Message, Task

LETTERS = "abcdefgh"
TOKENIZER = character_tokenizer(LETTERS + "<|im_endstar>/:\n ")
CHATML = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + eos_token + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
(EOS,) = TOKENIZER.eos_token_ids
FORBIDDEN = TOKENIZER.reserved_token_ids
TASK = Task(env="talk", task_id="train/0", messages=(Message(role="user", content="ab"),), answer="")


def chatml() -> Tokenizer:
    files = dict(character_tokenizer(LETTERS + "<|usertolain>\n").files)
    return Tokenizer.from_files({**files, "chat_template.jinja": CHATML.encode()})


@dataclass(kw_only=True)
class Talk:
    """Who speaks when and what they are told follows from a seed and all that was said."""

    num_agents: int = 1
    max_turns: int = 6
    max_turn_tokens: int = 0
    seed: int = 0
    ends_early: bool = True
    turn_rewards: bool = False

    def next_ask(self, task: Task, turns: Sequence[AgentTurn]) -> Ask | None:
        said = sha256(repr((self.seed, [(turn.agent, turn.text, turn.is_cut) for turn in turns])).encode()).digest()
        words = "".join(LETTERS[byte % len(LETTERS)] for byte in said[2 : 2 + said[1] % 5])
        if len(turns) < self.num_agents:
            return Ask(agent=len(turns), messages=(*task.messages, Message(role="user", content=words)))
        if self.ends_early and said[0] % 5 == 0:
            return None
        role = "tool" if said[0] % 2 else "user"
        return Ask(agent=said[0] % self.num_agents, messages=(Message(role=role, content=words),))

    def grade_episode(self, task: Task, turns: Sequence[AgentTurn]) -> tuple[EpisodeGrade, ...]:
        counts = [sum(turn.agent == agent for turn in turns) for agent in range(self.num_agents)]
        return tuple(
            EpisodeGrade(grade=Grade(reward=float(count)), turn_rewards=(1.0,) * count if self.turn_rewards else None)
            for count in counts
        )


def limits(max_completion_tokens: int = 40) -> EpisodeLimits:
    return EpisodeLimits(
        max_prompt_tokens=64, max_completion_tokens=max_completion_tokens, eos_token_ids=frozenset([EOS])
    )


def play(episode: Episode, draws: np.random.Generator, p_end: float = 0.3) -> Episode:
    """Draws letters, and an end with probability `p_end`."""
    letters = TOKENIZER.encode(LETTERS)
    while (pending := episode.pending) is not None:
        turn = list[int]()
        while len(turn) < pending.max_tokens and EOS not in turn:
            turn.append(EOS if draws.random() < p_end else int(draws.choice(letters)))
        episode.take(turn)
    return episode


def claims_of(views: Sequence[View]) -> list[Claim]:
    return [Claim(prompt_tokens=view.prompt_tokens, completion_tokens=view.completion_tokens) for view in views]


def problem_with(environment: Episodic, claims: Sequence[Claim], allowed: EpisodeLimits, made: Tokenizer) -> str:
    return replay(Episode(made, environment, TASK, allowed), claims, [EOS], FORBIDDEN)


talks = st.builds(
    Talk,
    num_agents=st.integers(1, 3),
    max_turns=st.integers(3, 8),
    max_turn_tokens=st.integers(0, 6),
    seed=st.integers(0, 10**6),
    ends_early=st.booleans(),
)
tokenizers = st.sampled_from([TOKENIZER, chatml()])


@settings(max_examples=150, deadline=None)
@given(talks, tokenizers, st.integers(3, 40), st.integers(0, 10**6))
def test_what_is_played_can_be_replayed(talk: Talk, made: Tokenizer, longest: int, seed: int) -> None:
    played = play(Episode(made, talk, TASK, limits(longest)), np.random.default_rng(seed))
    views = played.views
    again = Episode(made, talk, TASK, limits(longest))
    assert replay(again, claims_of(views), [EOS], FORBIDDEN) == ""
    assert (again.turns, again.ending) == (played.turns, played.ending)
    assert [view.spans for view in again.views] == [view.spans for view in views]
    said = [made.decode(view.completion_tokens[start:end].tolist()) for view in views for start, end in view.spans]
    assert sorted(said) == sorted(turn.text for turn in played.turns)
    for view in views:
        assert view.spans[0][0] == 0
        assert view.spans[-1][1] == len(view.completion_tokens) <= longest
        longest_turn = max(end - start for start, end in view.spans)
        assert longest_turn <= (talk.max_turn_tokens or longest)


@settings(max_examples=150, deadline=None)
@given(talks, tokenizers, st.integers(0, 10**6), st.data())
def test_no_other_token_may_stand_where_nobody_drew(
    talk: Talk, made: Tokenizer, seed: int, data: st.DataObject
) -> None:
    views = play(Episode(made, talk, TASK, limits()), np.random.default_rng(seed)).views
    agent = data.draw(st.integers(0, talk.num_agents - 1))
    tokens, mask = views[agent].completion_tokens, np.ones(len(views[agent].completion_tokens), dtype=bool)
    for start, end in views[agent].spans:
        mask[start:end] = False
    between = np.flatnonzero(mask).tolist()
    claims = claims_of(views)
    if between:
        forged = tokens.copy()
        forged[data.draw(st.sampled_from(between))] = data.draw(st.integers(-1, 200)) * 64 + 63  # no letter's id
        claims[agent] = replace(claims[agent], completion_tokens=forged)
        assert problem_with(talk, claims, limits(), made)
    claims = claims_of(views)
    claims[agent] = replace(claims[agent], prompt_tokens=claims[agent].prompt_tokens[1:])
    assert "not the canonical one" in problem_with(talk, claims, limits(), made)


@settings(max_examples=150, deadline=None)
@given(talks, tokenizers, st.integers(0, 10**6), st.data())
def test_no_row_may_be_cut_or_go_on(talk: Talk, made: Tokenizer, seed: int, data: st.DataObject) -> None:
    views = play(Episode(made, talk, TASK, limits()), np.random.default_rng(seed)).views
    agent = data.draw(st.integers(0, talk.num_agents - 1))
    tokens = views[agent].completion_tokens
    claims = claims_of(views)
    cut = tokens[: data.draw(st.integers(0, len(tokens) - 1))]
    claims[agent] = replace(claims[agent], completion_tokens=cut)
    assert problem_with(talk, claims, limits(), made)
    longer = np.concatenate([tokens, tokens[: data.draw(st.integers(1, 5))]])
    claims[agent] = replace(claims[agent], completion_tokens=longer)
    assert problem_with(talk, claims, limits(), made)


def test_a_turn_moved_to_another_agent_is_found() -> None:
    talk = Talk(num_agents=2, max_turns=2)
    views = play(Episode(TOKENIZER, talk, TASK, limits()), np.random.default_rng(5)).views
    one, other = claims_of(views)
    assert problem_with(talk, [one, other], limits(), TOKENIZER) == ""
    swapped = [
        replace(one, completion_tokens=other.completion_tokens),
        replace(other, completion_tokens=one.completion_tokens),
    ]
    assert problem_with(talk, swapped, limits(), TOKENIZER)


def test_a_reserved_id_may_stand_between_turns_but_not_in_one() -> None:
    talk = Talk(max_turns=1)
    (view,) = play(Episode(TOKENIZER, talk, TASK, limits()), np.random.default_rng(3), p_end=0.0).views
    forged = view.completion_tokens.copy()
    forged[0] = FORBIDDEN[0]
    claim = Claim(prompt_tokens=view.prompt_tokens, completion_tokens=forged)
    assert "reserved" in problem_with(talk, [claim], limits(), TOKENIZER)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10**6))
def test_any_environment_is_episodes_of_one_turn(longest: int, seed: int) -> None:
    sort = SortDigits(0, {})
    made = character_tokenizer(sort.alphabet())
    task = sort.task("train", seed % sort.num_tasks)
    episode = Episode(made, as_episodic(sort), task, limits(longest))
    assert episode.pending is not None
    assert episode.pending.tokens.tolist() == made.encode_chat(task.messages)
    assert episode.pending.max_tokens == longest
    turn = (made.encode("0123456789") * 2)[: min(longest, 8)]
    episode.take(turn if len(turn) == longest else [*turn, EOS])
    assert episode.ending is Ending.TURNS
    (graded,) = episode.grades(1000.0)
    assert graded.grade == sort.grade(task, made.decode(turn))
    assert isinstance(as_episodic(sort), SingleTurn)


class Fails(Talk):
    def next_ask(self, task: Task, turns: Sequence[AgentTurn]) -> Ask | None:
        if len(turns) == 1:
            raise KeyError("no such thing")
        return super().next_ask(task, turns)


def test_what_an_environment_raises_ends_the_episode_and_is_its_fault() -> None:
    one = play(Episode(TOKENIZER, Fails(), TASK, limits()), np.random.default_rng(0))
    assert (one.ending, one.fault_kind, one.unplayable) == (Ending.FAULT, "KeyError", "")
    with pytest.raises(EpisodeFault, match="no such thing"):
        one.grades(1000.0)
    two = play(Episode(TOKENIZER, Fails(num_agents=2), TASK, limits()), np.random.default_rng(0))
    assert "no such thing" in two.unplayable


def test_a_prompt_that_is_too_long_makes_the_episode_unplayable() -> None:
    allowed = replace(limits(), max_prompt_tokens=1)
    episode = Episode(TOKENIZER, Talk(), TASK, allowed)
    assert episode.ending is Ending.LONG_PROMPT
    assert "pool.max_prompt_tokens is 1" in episode.unplayable


class AsksInDisorder(Talk):
    def next_ask(self, task: Task, turns: Sequence[AgentTurn]) -> Ask | None:
        return Ask(agent=1, messages=task.messages)


class SpeaksAsSystem(Talk):
    def next_ask(self, task: Task, turns: Sequence[AgentTurn]) -> Ask | None:
        return Ask(agent=0, messages=(Message(role="system", content="a"),))


@pytest.mark.parametrize(
    ("environment", "words"), [(AsksInDisorder(num_agents=2), "first asks"), (SpeaksAsSystem(), "role other than")]
)
def test_an_environment_that_does_not_keep_to_its_interface_is_at_fault(environment: Talk, words: str) -> None:
    assert words in play(Episode(TOKENIZER, environment, TASK, limits()), np.random.default_rng(0)).fault


class GradesBadly(Talk):
    grades: tuple[EpisodeGrade, ...] = ()

    def grade_episode(self, task: Task, turns: Sequence[AgentTurn]) -> tuple[EpisodeGrade, ...]:
        return self.grades


@pytest.mark.parametrize(
    ("grades", "words"),
    [
        ([], "0 grades of 1 agents"),
        ([EpisodeGrade(grade=Grade(reward=float("nan")))], "reward is nan"),
        ([EpisodeGrade(grade=Grade(reward=1.0), turn_rewards=(1.0,))], "for each of 2 turns"),
        ([EpisodeGrade(grade=Grade(reward=1.0), turn_rewards=(1.0, 1.0))], "sum to 2.0"),
        ([EpisodeGrade(grade=Grade(reward=0.0), turn_rewards=(3000.0, -3000.0))], "at most 1000"),
    ],
)
def test_grades_that_are_none_of_these_turns_are_refused(grades: list[EpisodeGrade], words: str) -> None:
    environment = GradesBadly(max_turns=2, ends_early=False)
    environment.grades = tuple(grades)
    episode = play(Episode(TOKENIZER, environment, TASK, limits()), np.random.default_rng(0))
    assert len(episode.turns) == 2
    with pytest.raises(EpisodeFault, match=words):
        episode.grades(1000.0)


class Repeats(Talk):
    """Tells the second agent what the first one said."""

    def next_ask(self, task: Task, turns: Sequence[AgentTurn]) -> Ask | None:
        heard = turns[-1].text if turns else "a"
        return Ask(agent=len(turns), messages=(Message(role="user", content=heard),))


def with_plain_end_token() -> Tokenizer:
    """The end-of-sequence token is spelled with characters that a model can draw one by one."""
    files = dict(TOKENIZER.files)
    return Tokenizer.from_files({name: data.replace("⟨eos⟩".encode(), b"<|im_end|>") for name, data in files.items()})


def test_a_model_cannot_spell_the_end_of_a_turn_into_another_agents_prompt() -> None:
    made = with_plain_end_token()
    episode = Episode(made, Repeats(num_agents=2, max_turns=2), TASK, limits(60))
    letters = [TOKENIZER.encode(letter)[0] for letter in "a<|im_end|>b"]
    episode.take([*letters, EOS])
    assert episode.turns[0].text == "a<|im_end|>b"
    assert episode.pending is not None
    assert EOS not in episode.pending.tokens
    assert made.decode(episode.pending.tokens.tolist()) == "a< |im_end|>b"


def test_a_template_that_rewrites_what_was_said_ends_the_episode() -> None:
    drops = CHATML.replace("m.content +", "(m.content if loop.last else m.content[:1]) +")
    made = Tokenizer.from_files({**chatml().files, "chat_template.jinja": drops.encode()})
    episode = Episode(made, Talk(max_turns=3, ends_early=False), TASK, limits(60))
    episode.take([*made.encode("abc"), EOS])
    assert (episode.ending, len(episode.turns)) == (Ending.REWRITTEN, 1)
    (view,) = episode.views
    assert view.completion_tokens.tolist() == [*made.encode("abc"), EOS]
