from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.envs.mod_sum import ModSum, read_scratchpad, write_scratchpad
from farflung.errors import UserError
from farflung.wire.pool import EnvArg
from farflung.wire.task import Message, Task

HONEST = "[40=4;3=2;12=0;2=2;]2"


def mod_sum(**args: EnvArg) -> ModSum:
    return ModSum(0, args)


def asks(digits: str = "403122", answer: str = "2", target: int = 0) -> Task:
    prompt = f"{target}:{digits}=" if target else f"{digits}="
    return Task(
        env="mod-sum",
        task_id="train/0",
        messages=(Message(role="user", content=prompt),),
        answer=answer,
        target_length=target,
    )


@pytest.mark.parametrize(
    ("completion", "target", "reward", "correct", "length_error"),
    [
        (HONEST, 4, 1.0, 1.0, 0),
        (HONEST, 0, 1.0, 1.0, 0),
        (HONEST, 3, 0.8, 1.0, 1),
        (HONEST, 6, 0.6, 1.0, 2),
        ("[4=4;0=4;3=2;1=3;2=0;2=2;]2", 3, 0.4, 1.0, 3),
        ("[40=4;31=3;22=2;]2", 3, 1.0, 1.0, 0),
        ("[40=4;3=1;12=4;2=1;]1", 4, 0.0, 0.0, 0),
        ("[40=4;3=1;12=4;2=1;]1", 0, 0.0, 0.0, 0),
        ("[40=4;3=1;12=4;2=1;]1", 5, -0.2, 0.0, 1),
        ("[40=0;3=0;12=0;2=0;]2", 4, 1.0, 1.0, 0),  # wrong thoughts, right answer: the outcome is what is rewarded
        ("", 4, -0.6, 0.0, 3),
        ("", 3, -0.8, 0.0, 4),
        ("", 6, -0.8, 0.0, 4),
        ("", 0, 0.0, 0.0, 0),
    ],
)
def test_reward_is_correct_minus_alpha_times_the_length_error(
    completion: str, target: int, reward: float, correct: float, length_error: int
) -> None:
    grade = mod_sum().grade(asks(target=target), completion)

    assert grade.reward == pytest.approx(reward)
    assert grade.correct == correct
    assert grade.components["correct"] == correct
    assert grade.components["length_error"] == length_error


CHEATS = {
    "nothing": "",
    "the answer alone": "2",
    "no steps": "[]2",
    "an unclosed scratchpad": "[40=4;3=2;12=0;2=2;2",
    "no answer": "[40=4;3=2;12=0;2=2;]",
    "two answers": "[40=4;3=2;12=0;2=2;]22",
    "two answers in two scratchpads": HONEST + "[40=4;3=2;12=0;2=2;]3",
    "the answer first": "2[40=4;3=2;12=0;2=2;]2",
    "invented steps": "[0=0;0=0;0=0;0=0;]2",
    "a padded scratchpad": "[4=4;0=4;0=4;0=4;3=2;12=0;2=2;]2",
    "an empty step": "[40=4;3=2;12=0;2=2;;]2",
    "skipped digits": "[40=4;3=2;12=0;]2",
    "all digits at once": "[403122=2;]2",
    "a long running sum": "[40=04;3=02;12=00;2=02;]2",
    "other digits of the same value": "[40=4;3=2;12=0;2=2;]\u0662",
    "white space": f" {HONEST}",
    "a step too many": "[40=4;3=2;12=0;2=2;2=4;]2",
    "a flood": HONEST[:-2] * 200_000,
    "a flood of the right thing": HONEST * 200_000,
}


@pytest.mark.parametrize("target", [0, 3, 4, 5, 6])
@pytest.mark.parametrize("cheat", CHEATS)
def test_no_malformed_completion_beats_the_worst_well_formed_one(cheat: str, target: int) -> None:
    env = mod_sum()
    task = asks(target=target)
    wrong = [
        env.grade(task, write_scratchpad("403122", plan, 5)[:-1] + "0").reward
        for plan in ([2, 2, 2], [1, 1, 2, 2], [2, 1, 1, 1, 1], [1] * 6)
    ]
    grade = env.grade(task, CHEATS[cheat])

    assert grade.correct == 0.0
    assert grade.components["well_formed"] == 0.0
    assert grade.reward is not None
    assert all(reward is not None and (grade.reward < reward or not target) for reward in wrong)


plans = st.lists(st.integers(1, 2), min_size=1, max_size=8)


@given(plans, st.integers(2, 10), st.data())
def test_a_written_scratchpad_is_read_back_with_its_steps_and_the_right_sum(
    plan: list[int], base: int, data: st.DataObject
) -> None:
    digits = data.draw(st.text("0123456789"[:base], min_size=sum(plan), max_size=sum(plan)))
    scratchpad = read_scratchpad(write_scratchpad(digits, plan, base), digits)

    assert scratchpad is not None
    assert scratchpad.num_steps == len(plan)
    assert int(scratchpad.answer) == sum(map(int, digits)) % base


@given(st.text("0123=;[]", max_size=30))
def test_whatever_is_well_formed_takes_all_digits_in_a_legal_number_of_steps(completion: str) -> None:
    scratchpad = read_scratchpad(completion, "0123")
    assert scratchpad is None or 2 <= scratchpad.num_steps <= 4


def test_every_possible_number_of_steps_is_a_target() -> None:
    assert mod_sum().target_lengths == (3, 4, 5, 6)
    assert mod_sum(num_digits=5).target_lengths == (3, 4, 5)
    assert mod_sum(thinking_budget=False).target_lengths == ()


def steps_of_demonstrations(env: ModSum, target: int, num_draws: int = 600) -> Counter[int]:
    counts: Counter[int] = Counter()
    for draw in range(num_draws):
        task = env.task("train", draw % 50, target)
        grade = env.grade(task, env.demonstration(task, draw))
        assert grade.correct == 1.0
        counts[env.demonstration(task, draw).count(";")] += 1
    return counts


def test_demonstrations_honour_the_target_as_often_as_corr_says() -> None:
    assert steps_of_demonstrations(mod_sum(corr=1.0), 5) == {5: 600}
    chance = steps_of_demonstrations(mod_sum(corr=0.0), 5)
    assert sorted(chance) == [3, 4, 5, 6]
    assert all(100 < count < 200 for count in chance.values())  # 150 +- 10.6
    mixed = steps_of_demonstrations(mod_sum(corr=0.4), 5)
    assert 270 < mixed[5] < 390  # 0.4 + 0.6 / 4 = 0.55 of 600


def test_demonstrations_without_a_target_take_any_number_of_steps_and_differ_by_draw() -> None:
    env = mod_sum(corr=1.0)
    assert sorted(steps_of_demonstrations(env, 0)) == [3, 4, 5, 6]
    task = env.task("train", 0)
    assert env.demonstration(task, 5) == env.demonstration(task, 5)
    assert len({env.demonstration(task, draw) for draw in range(50)}) > 5


def test_alpha_0_leaves_the_answer_alone() -> None:
    env = mod_sum(alpha=0.0)
    assert env.grade(asks(target=6), HONEST).reward == 1.0
    assert env.grade(asks(target=6), "").reward == 0.0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"base": 11}, "base is 11 .*at most 10"),
        ({"corr": 1.5}, "corr is 1.5 .*at most 1"),
        ({"alpha": -1.0}, "alpha is -1.0 .*at least 0"),
        ({"num_digits": "6"}, "whole number"),
        ({"corr": float("nan")}, "finite number"),
    ],
)
def test_wrong_arguments_are_named_with_their_rule(args: dict[str, EnvArg], message: str) -> None:
    with pytest.raises(UserError, match=message):
        mod_sum(**args)
