"""Guess the letter: what is answered, and what a guess is worth."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.envs.episode import AgentTurn, Episodic
from farflung.envs.guess_letter import LETTERS_PER_RANGE, GuessLetter
from farflung.errors import UserError
from farflung.wire.task import Message, Task


def guessing(**args: Any) -> GuessLetter:
    return GuessLetter(0, args)


def task(prompt: str = "c-j?", answer: str = "e") -> Task:
    return Task(env="guess-letter", task_id="train/0", messages=(Message(role="user", content=prompt),), answer=answer)


def said(*texts: str) -> list[AgentTurn]:
    return [AgentTurn(agent=0, text=text) for text in texts]


def answer(turns: Sequence[AgentTurn]) -> str | None:
    ask = guessing().next_ask(task(), turns)
    return None if ask is None else ask.messages[0].content


def test_each_guess_is_answered_until_the_letter_is_found() -> None:
    assert isinstance(guessing(), Episodic)
    assert answer([]) == "c-j?"
    assert answer(said("g")) == "-"
    assert answer(said("g", "d")) == "+"
    assert answer(said("g", "d", "e")) is None
    for wrong in ("", "b", "k", "ee", "E", "5", "-"):
        assert answer(said(wrong)) == "!"


def test_rewards_of_turns_are_the_share_of_the_question_that_they_answer() -> None:
    (graded,) = guessing().grade_episode(task(), said("f", "e"))  # c-j are 8; then c, d, e; then e alone
    assert graded.turn_rewards is not None
    assert graded.turn_rewards[0] == pytest.approx(1 - 1.5849625 / 3)
    assert sum(graded.turn_rewards) == pytest.approx(1.0)
    assert (graded.grade.reward, graded.grade.correct) == (pytest.approx(1.0), 1.0)


@pytest.mark.parametrize("lost", ["", "a", "ff", "h"])
def test_a_guess_that_cannot_be_right_any_more_is_lost(lost: str) -> None:
    (graded,) = guessing().grade_episode(task(), said("f", lost))
    assert graded.turn_rewards is not None
    assert graded.turn_rewards[1] == -0.1
    assert graded.grade.correct == 0.0


@given(st.integers(0, 400), st.lists(st.text("abcdefghijklmnopqrstuvwxyz+", max_size=2), max_size=4))
def test_rewards_add_up_and_never_exceed_one(index: int, texts: list[str]) -> None:
    env = guessing()
    of = env.task("train", index)
    turns = list[AgentTurn]()
    for text in texts:
        if env.next_ask(of, turns) is None:
            break
        turns.append(AgentTurn(agent=0, text=text))
    (graded,) = env.grade_episode(of, turns)
    assert graded.turn_rewards is not None
    assert graded.grade.reward == pytest.approx(sum(graded.turn_rewards))
    assert sum(graded.turn_rewards) <= 1.0 + 1e-9
    assert graded.grade.correct == float(of.answer in texts[: len(turns)])


@given(st.integers(0, 400))
def test_halving_finds_every_letter_within_the_logarithm(index: int) -> None:
    env = guessing(max_guesses=5)
    of = env.task("train", index)
    low, high = ord(of.messages[0].content[0]), ord(of.messages[0].content[2])
    turns = list[AgentTurn]()
    while (ask := env.next_ask(of, turns)) is not None:
        if turns:
            middle = ord(turns[-1].text)
            low, high = (middle + 1, high) if ask.messages[0].content == "+" else (low, middle - 1)
        turns.append(AgentTurn(agent=0, text=chr((low + high) // 2)))
    assert len(turns) <= 5
    assert turns[-1].text == of.answer


def test_the_prompt_does_not_give_the_letter_away_and_the_splits_share_no_range() -> None:
    env = guessing()
    first = [env.task("train", index) for index in range(LETTERS_PER_RANGE)]
    assert len({each.messages for each in first}) == 1
    assert len({each.answer for each in first}) == LETTERS_PER_RANGE
    prompts = {env.task("train", index).messages for index in range(env.num_tasks)}
    assert not prompts & {env.task("heldout", index).messages for index in range(env.num_heldout_tasks)}


def test_a_shown_guess_is_a_letter_of_the_range() -> None:
    env = guessing()
    shown = {env.demonstrate_turn(task(), [], draw) for draw in range(200)}
    assert shown == set("cdefghij")


def test_wrong_arguments_and_indices_say_what_to_do() -> None:
    with pytest.raises(UserError, match="num_letters"):
        guessing(num_letters=3)
    with pytest.raises(IndexError):
        guessing().task("heldout", 10**6)
