"""Take-away by its rules and by the theory of it."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.envs.episode import AgentTurn, Episodic, num_agents_of
from farflung.envs.take_away import NUM_REPEATS, TakeAway
from farflung.errors import UserError
from farflung.wire.task import Task


def game(**args: Any) -> TakeAway:
    return TakeAway(0, {"max_pile": 21, "max_take": 3} | args)


def task(prompt: str = "3/7:") -> Task:
    return replace_answer(game().task("train", 0), prompt)


def replace_answer(made: Task, prompt: str) -> Task:
    return Task(env=made.env, task_id=made.task_id, messages=made.messages, answer=prompt)


def said(*texts: str, num_agents: int = 2) -> list[AgentTurn]:
    return [AgentTurn(agent=number % num_agents, text=text) for number, text in enumerate(texts)]


def asked(env: TakeAway, of: Task, turns: Sequence[AgentTurn]) -> tuple[int, str] | None:
    ask = env.next_ask(of, turns)
    return None if ask is None else (ask.agent, ask.messages[0].content)


def test_the_players_move_in_turn_and_hear_what_is_left() -> None:
    env, of = game(), task()
    assert isinstance(env, Episodic)
    assert num_agents_of(env) == 2
    assert asked(env, of, []) == (0, "3/7:")
    assert asked(env, of, said("3")) == (1, "3/4:")
    assert asked(env, of, said("3", "1")) == (0, "3:")
    assert asked(env, of, said("3", "1", "3")) is None


def test_who_takes_the_last_one_wins_and_the_share_of_winning_moves_is_counted() -> None:
    first, second = game().grade_episode(task(), said("3", "1", "3"))
    assert (first.grade.reward, first.grade.correct, first.grade.components["best"]) == (1.0, 1.0, 1.0)
    assert (second.grade.reward, second.grade.correct) == (0.0, 0.0)
    assert "best" not in second.grade.components  # it never had a chance
    first, second = game().grade_episode(task(), said("1", "2", "3", "1"))
    assert (first.grade.reward, second.grade.reward) == (0.0, 1.0)
    assert first.grade.components["best"] == 0.0
    assert second.grade.components["best"] == 1.0


@pytest.mark.parametrize("text", ["", "0", "4", "11", "1 ", "x", "²", "٣"])
def test_what_is_no_legal_move_takes_one_and_costs(text: str) -> None:
    env, of = game(), task()
    assert asked(env, of, said(text)) == (1, "3/6:")
    first, _ = env.grade_episode(of, said(text))
    assert first.grade.reward == -0.5
    assert first.grade.components["illegal"] == 1.0


def test_more_than_is_left_is_illegal_too() -> None:
    assert asked(game(), task("3/5:"), said("3", "3")) == (0, "1:")


@given(st.integers(0, 30), st.lists(st.sampled_from(["1", "2", "3", "", "?"]), max_size=25))
def test_every_game_ends_within_its_turns_with_one_winner_and_both_have_moved(index: int, texts: list[str]) -> None:
    env = game()
    of = env.task("train", index)
    turns = list[AgentTurn]()
    for text in [*texts, *["1"] * env.max_turns]:
        ask = env.next_ask(of, turns)
        if ask is None:
            break
        assert ask.agent == len(turns) % 2
        turns.append(AgentTurn(agent=ask.agent, text=text))
    assert 2 <= len(turns) <= env.max_turns
    assert sum(each.grade.correct or 0 for each in env.grade_episode(of, turns)) == 1.0


@pytest.mark.parametrize("prompt", [f"{most}/{pile}:" for most in (2, 3) for pile in range(4, 22)])
def test_right_play_wins_against_right_play_exactly_where_theory_says(prompt: str) -> None:
    env, of = game(opponent="perfect"), task(prompt)
    most, pile = map(int, prompt.rstrip(":").split("/"))
    turns = list[AgentTurn]()
    while (ask := env.next_ask(of, turns)) is not None:
        left = int(ask.messages[0].content.rstrip(":").rpartition("/")[2])
        turns.append(AgentTurn(agent=0, text=str(left % (most + 1) or 1)))
    (graded,) = env.grade_episode(of, turns)
    assert graded.grade.correct == float(pile % (most + 1) != 0)


def test_a_scripted_opponent_answers_the_same_every_time_and_is_no_agent() -> None:
    env = game(opponent="random")
    of = env.task("heldout", 3)
    assert num_agents_of(env) == 1
    assert env.next_ask(of, said("1", num_agents=1)) == env.next_ask(of, said("1", num_agents=1))


def test_against_a_script_every_start_can_be_won_and_nothing_is_trained_on() -> None:
    env = game(opponent="perfect")
    assert env.num_tasks == 0
    starts = [env.task("heldout", index).answer for index in range(env.num_heldout_tasks)]
    assert len(starts) == NUM_REPEATS * len(set(starts))
    for start in starts:
        most, pile = map(int, start.rstrip(":").split("/"))
        assert pile % (most + 1)


@given(st.integers(0, 30), st.integers(0, 1000))
def test_every_shown_move_is_legal(index: int, draw: int) -> None:
    env = game()
    of, turns = env.task("train", index), list[AgentTurn]()
    while (ask := env.next_ask(of, turns)) is not None:
        turns.append(AgentTurn(agent=ask.agent, text=env.demonstrate_turn(of, turns, draw)))
    assert {each.grade.components["illegal"] for each in env.grade_episode(of, turns)} == {0.0}


def test_wrong_arguments_say_what_to_do() -> None:
    with pytest.raises(UserError, match="max_pile"):
        game(max_pile=5, max_take=5)
    with pytest.raises(UserError, match="opponent"):
        game(opponent="grandmaster")
