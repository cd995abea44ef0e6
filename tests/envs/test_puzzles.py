"""Countdown, latin squares, walks, formulas and trading: what is right, what is nearly right, and what is no answer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from farflung.envs.base import Environment, Grade
from farflung.envs.grid_walk import GridWalk, reaches, shortest_way
from farflung.envs.latin_square import _squares
from farflung.envs.registry import load_environment
from farflung.envs.trading import best_plan, profit_of
from farflung.rewards.small_formula import parse_formula
from farflung.wire.task import Message, Task

NAMES = ("countdown", "latin-square", "grid-walk", "find-formula", "trading")


def environment(name: str, **args: Any) -> Environment:
    return load_environment(name, 0, args)


def asked(name: str, prompt: str, answer: str) -> Task:
    return Task(env=name, task_id="train/0", messages=(Message(role="user", content=prompt),), answer=answer)


def graded(name: str, prompt: str, answer: str, completion: str) -> Grade:
    return environment(name).grade(asked(name, prompt, answer), completion)


@pytest.mark.parametrize("name", NAMES)
def test_every_demonstration_is_right(name: str) -> None:
    loaded = environment(name)
    for index in range(0, min(loaded.num_tasks, 3000), 37):
        task = loaded.task("train", index)
        for draw in range(3):
            text = loaded.demonstration(task, draw)
            assert text is not None
            assert loaded.grade(task, text).reward == 1.0


@pytest.mark.parametrize("name", NAMES)
@given(text=st.text(max_size=80))
def test_no_text_raises_and_the_empty_one_is_worth_nothing(name: str, text: str) -> None:
    loaded = environment(name)
    task = loaded.task("train", 11)
    reward = loaded.grade(task, text).reward
    assert reward is not None
    assert 0 <= reward <= 1
    assert loaded.grade(task, "").reward == 0


@pytest.mark.parametrize("name", NAMES)
def test_every_task_knows_how_hard_it_is(name: str) -> None:
    loaded: Any = environment(name)
    if name != "latin-square":
        assert loaded.level(loaded.task("heldout", 0))


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("3*5+7", 1.0),
        ("7+5*3", 1.0),
        ("5 * 3 + 7", 1.0),
        ("<think>3*7=21</think>3*5+7", 1.0),
        (r"\boxed{3*5+7}", 1.0),
        ("22", 0.0),
        ("3*5+7*1", 0.0),
        ("3*5+7+0", 0.0),
        ("3*7+1", 0.0),
        ("x*5+7", 0.0),
        ("35-13", 0.0),
        ("3*5+7=22", 0.0),
    ],
)
def test_countdown_takes_any_formula_of_the_numbers_and_no_other(completion: str, reward: float) -> None:
    assert graded("countdown", "3,5,7=22>", "22", completion).reward == reward


def test_countdown_says_whether_the_numbers_were_used() -> None:
    assert graded("countdown", "3,5,7=22>", "22", "3+5+7").components == {"correct": 0.0, "uses_numbers": 1.0}


@pytest.mark.parametrize(
    ("plan", "profit"),
    [("bsbsbs", 9), ("------", 0), ("b-s---", -2), ("b-----", -3), ("s-----", None), ("bb----", None), ("bs", None)],
)
def test_trading_counts_what_a_plan_earns(plan: str, profit: int | None) -> None:
    assert profit_of([3, 5, 1, 6, 2, 4], plan) == profit


@given(st.lists(st.integers(1, 9), min_size=2, max_size=7))
def test_no_plan_beats_the_best(prices: list[int]) -> None:
    from itertools import product

    best = max(
        profit
        for plan in product("bs-", repeat=len(prices))
        if (profit := profit_of(prices, "".join(plan))) is not None
    )
    assert profit_of(prices, best_plan(prices)) == best


@pytest.mark.parametrize(
    ("completion", "reward"), [("bsbsbs", 1.0), ("bs----", 2 / 9), ("------", 0.0), ("b-----", 0.0), ("buy low", 0.0)]
)
def test_trading_pays_a_share_of_the_best_profit(completion: str, reward: float) -> None:
    assert graded("trading", "351624>", "bsbsbs", completion).reward == pytest.approx(reward)


def test_where_no_price_rises_doing_nothing_is_best() -> None:
    assert graded("trading", "654321>", "------", "------").reward == 1.0
    assert graded("trading", "654321>", "------", "b-----").reward == 0.0
    assert graded("trading", "654321>", "------", "").reward == 0.0


@pytest.mark.parametrize(
    ("completion", "reward", "correct"),
    [
        ("ddrrdr", 1.0, 1.0),
        ("ddrrrd", 1.0, 1.0),
        ("rrrddd", 0.0, 0.0),
        ("ddrrlrdr", 0.75, 0.0),
        ("r", 0.0, 0.0),
        ("x", 0.0, 0.0),
    ],
)
def test_a_walk_is_worth_how_short_it_is(completion: str, reward: float, correct: float) -> None:
    grade = graded("grid-walk", "s.#./..#./..../.#.g>", "ddrrdr", completion)
    assert (grade.reward, grade.correct) == (reward, correct)


def test_where_there_is_no_way_that_is_the_answer() -> None:
    grid = ["s#..", "#...", "....", "...g"]
    assert shortest_way(grid) == "x"
    assert graded("grid-walk", "s#../#.../..../...g>", "x", "x").reward == 1.0
    assert graded("grid-walk", "s#../#.../..../...g>", "x", "ddrr").reward == 0.0


def test_every_map_is_another_one() -> None:
    walk = GridWalk(0, {"size": 3, "num_walls": 2})
    prompts = {walk.task("train", index).messages[0].content for index in range(walk.num_tasks)}
    assert len(prompts) == walk.num_tasks


@given(st.text(alphabet="udlr", max_size=70))
def test_a_walk_that_arrives_is_never_shorter_than_the_shortest(moves: str) -> None:
    grid = ["s.#.", "..#.", "....", ".#.g"]
    if reaches(grid, moves):
        assert len(moves) >= len(shortest_way(grid))


def test_all_latin_squares_are_there() -> None:
    squares = _squares()
    assert len(set(squares)) == 576
    for square in squares[::50]:
        for line in range(4):
            assert set(square[4 * line : 4 * line + 4]) == set(square[line::4]) == set("1234")


def test_a_latin_square_has_one_solution_and_no_other_text_is_it() -> None:
    loaded = environment("latin-square")
    for index in range(0, 2000, 97):
        task = loaded.task("train", index)
        others = [text for text in ("1111", task.answer[::-1], task.answer + "1") if text != task.answer]
        assert all(loaded.grade(task, text).reward == 0 for text in others)
    half = task.answer[:3]
    assert loaded.grade(task, half).components["share_right"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("1+x*x", 1.0),
        ("x*x+1", 1.0),
        ("x*x+1+0", 0.8),
        ("x*x+2-1", 0.8),
        ("1+x", 0.0),
        ("(x+0)*(x+0)+1", 0.5),
        ("1,2,5,10", 0.0),
    ],
)
def test_a_formula_is_worth_more_the_shorter_it_is(completion: str, reward: float) -> None:
    assert graded("find-formula", "1,2,5,10>", "1+x*x", completion).reward == pytest.approx(reward)


@pytest.mark.parametrize(("max_number", "num_tables"), [(2, 42), (9, 626), (30, 6506)])
def test_every_table_has_its_shortest_formula(max_number: int, num_tables: int) -> None:
    """The reckoning that makes the tables and the parser that grades agree on what a formula means."""
    searched = environment("find-formula", max_number=max_number)
    assert searched.num_tasks + searched.num_heldout_tasks == num_tables
    for index in range(0, searched.num_tasks, 40):
        task = searched.task("train", index)
        shown = task.messages[-1].content.removesuffix(">").split(",")
        formula = parse_formula(task.answer)
        assert formula is not None
        assert [str(formula.at(x)) for x in range(4)] == shown


def test_what_fits_only_where_it_was_shown_is_no_discovery() -> None:
    """x * (x - 1) * (x - 2) * (x - 3) is 0 at every shown point and nowhere else."""
    overfitted = "1+x*x+x*(x-1)*(x-2)*(x-3)"
    grade = graded("find-formula", "1,2,5,10>", "1+x*x", overfitted)
    assert grade.components["fits"] == 1.0
    assert grade.correct == grade.reward == 0.0


def test_tasks_of_one_environment_are_not_another_ones() -> None:
    task = environment("countdown").task("train", 0)
    assert replace(task, env="trading") != task
