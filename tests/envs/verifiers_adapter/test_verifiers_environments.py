"""Environments of Prime's library: its own integrations, and ones written the way its users write them.

They run where the library is installed (`pip install 'farflung[verifiers]'`) and are skipped elsewhere.
"""

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from farflung.envs.base import Environment, is_reproducible
from farflung.envs.episode import AgentTurn, Ask, Episodic
from farflung.envs.registry import load_environment
from farflung.errors import OurFault, UserError
from farflung.wire.pool import EnvArg
from farflung.wire.task import Message, Task

pytestmark = [
    pytest.mark.skipif(find_spec("verifiers") is None, reason="verifiers is absent: pip install 'farflung[verifiers]'"),
    pytest.mark.filterwarnings("ignore"),  # the library's own
]
Load = Callable[..., Environment]


@pytest.fixture
def load(site: Path) -> Load:
    def begin(name: str, seed: int = 0, **args: EnvArg) -> Environment:
        return load_environment(f"verifiers:{name}", seed, {"time_limit_s": 20.0, **args})

    return begin


def said(*texts: str) -> tuple[AgentTurn, ...]:
    return tuple(AgentTurn(agent=0, text=text) for text in texts)


def play(environment: Environment, task: Task, *texts: str) -> Ask | None:
    assert isinstance(environment, Episodic)
    return environment.next_ask(task, said(*texts))


def test_rows_become_tasks_with_the_librarys_prompt(load: Load) -> None:
    sums = load("vf-sums")
    task = sums.task("train", 0)
    assert not isinstance(sums, Episodic)
    assert (sums.num_tasks, sums.num_heldout_tasks) == (27, 3)
    assert [message.role for message in task.messages] == ["system", "user"]
    assert task.messages[0].content == "Add."
    assert (task.env, task.task_id) == ("verifiers:vf-sums", "train/0")
    with pytest.raises(IndexError):
        sums.task("train", 27)
    with pytest.raises(ValueError, match="target length 5"):
        sums.task("train", 0, 5)


@pytest.mark.parametrize("with_eval", [False, True])
def test_no_prompt_is_in_both_splits(load: Load, with_eval: bool) -> None:
    sums = load("vf-sums", num_rows=300, with_eval=with_eval)
    train = {sums.task("train", index).messages for index in range(sums.num_tasks)}
    heldout = {sums.task("heldout", index).messages for index in range(sums.num_heldout_tasks)}
    assert train
    assert heldout
    assert not train & heldout


def test_rubrics_become_components_and_a_weighted_reward(load: Load) -> None:
    sums = load("vf-sums")
    task = sums.task("heldout", 1)
    grade = sums.grade(task, f"<answer>{task.answer}</answer>")
    assert (grade.reward, grade.correct) == (1.25, 1.0)
    assert grade.components == {"right": 1.0, "has_digits": 1.0, "hangs": 0.0, "num_turns": 1.0}
    assert sums.grade(task, "7").reward == 0.25
    assert sums.grade(task, "").reward == 0.0
    strict = load("vf-sums", correct_at=1.3)
    assert strict.grade(task, f"<answer>{task.answer}</answer>").correct == 0.0


def test_a_reward_function_that_raises_is_0_and_one_that_hangs_gives_no_grade(load: Load) -> None:
    sums = load("vf-sums", time_limit_s=0.5)
    task = sums.task("train", 0)
    assert sums.grade(task, "raise").reward == 0.0
    assert sums.grade(task, "hang").reward is None
    assert sums.grade(task, f"<answer>{task.answer}</answer>").reward == 1.25, "the next one is graded as ever"
    slow = load("vf-sums", slow=True, time_limit_s=0.5)
    assert slow.grade(task, "7").reward is None


def test_tasks_are_the_same_in_every_process_though_the_environment_draws_them(load: Load, site: Path) -> None:
    program = (
        "from farflung.envs.registry import load_environment as load\n"
        "one = load('verifiers:vf-sums', 5, {}); print(one.task('train', 3).messages[1].content)\n"
        "two = load('verifiers:vf-guess', 5, {}); task = two.task('train', 3)\n"
        "from farflung.envs.episode import AgentTurn\n"
        "print(two.next_ask(task, [AgentTurn(agent=0, text='99')]).messages[0].content)\n"
    )
    path = ":".join([str(site), *sys.path])
    other = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={"PYTHONPATH": path, "HOME": str(site)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    guess = load("vf-guess", 5)
    ask = play(guess, guess.task("train", 3), "99")
    assert ask is not None
    assert other.stdout.splitlines() == [
        load("vf-sums", 5).task("train", 3).messages[1].content,
        ask.messages[0].content,
    ]


def test_loading_leaves_signals_and_random_numbers_as_they_were(load: Load) -> None:
    handlers, state = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)], random.getstate()
    load("vf-sums").task("train", 0)
    with ThreadPoolExecutor(1) as other_thread:
        other_thread.submit(load, "vf-sums").result().task("train", 0)
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert random.getstate() == state


def test_an_environment_of_several_turns_is_replayed_from_its_beginning(load: Load) -> None:
    guess = load("vf-guess")
    assert isinstance(guess, Episodic)
    assert guess.max_turns == 16
    task = guess.task("train", 1)
    assert play(guess, task) == Ask(agent=0, messages=task.messages)
    first, second = play(guess, task, "99"), play(guess, task, "99", "98")
    assert first is not None
    assert second is not None
    assert first.messages[0].content.startswith("lower, 2 left")
    assert second.messages[0].content.startswith("lower, 1 left")
    assert play(guess, task, "99") == first
    assert play(guess, task, "99", task.answer) is None
    assert play(guess, task, "quit") is None, "it ends with the environment's last word"
    assert guess.grade_episode(task, said("99", task.answer))[0].grade.reward == 1.0
    assert guess.grade_episode(task, said("99"))[0].grade.reward == 0.0, "cut off by a limit of ours"


def test_limits_of_turns_are_the_environments_own_or_the_adapters(load: Load) -> None:
    assert load("vf-guess", max_turns=3).max_turns == 3  # type: ignore[attr-defined]
    assert load("vf-guess", max_episode_turns=5).max_turns == 5  # type: ignore[attr-defined]


def test_what_cannot_be_told_token_by_token_says_so(load: Load) -> None:
    guess = load("vf-guess")
    task = guess.task("train", 0)
    with pytest.raises(OurFault, match="part of type image_url"):
        play(guess, task, "picture")
    with pytest.raises(OurFault, match="rewrites what was said"):
        play(guess, task, "rewrite")
    with pytest.raises(OurFault, match="leaves out what the model said"):
        play(guess, task, "forget")


def test_a_turn_that_the_environment_cannot_read_ends_the_episode_for_nothing(load: Load) -> None:
    guess = load("vf-guess")
    assert isinstance(guess, Episodic)
    task = guess.task("train", 0)
    for text in ("a word", "", "9" * 5000):
        assert play(guess, task, text) is None
        assert guess.grade_episode(task, said(text))[0].grade.reward == 0.0
    for ask in (lambda: play(guess, task, "memory"), lambda: guess.grade_episode(task, said("memory"))):
        with pytest.raises(MemoryError):
            ask()


def test_trouble_of_the_environments_machines_gives_no_grade(load: Load) -> None:
    guess = load("vf-guess")
    assert guess.grade_episode(guess.task("train", 0), said("break", "1"))[0].grade.reward is None  # type: ignore[attr-defined]


def test_tools_are_told_called_and_answered_in_the_conversation(load: Load) -> None:
    tools = load("vf-tools")
    task = tools.task("train", 2)
    assert "Use tools." in task.messages[0].content
    assert '"name": "add"' in task.messages[0].content
    add = 'So <tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'
    shout = '<tool_call>{"name": "shout", "arguments": {"text": "hey"}}</tool_call>'
    told = play(tools, task, add + shout)
    assert told is not None
    assert told.messages == (Message(role="tool", content="5"), Message(role="tool", content="HEY"))
    for unreadable in ("<tool_call>2 + 3</tool_call>", '<tool_call>{"name": "absent"}</tool_call>'):
        refused = play(tools, task, unreadable)
        assert refused is not None
        assert len(refused.messages) == 1
    assert play(tools, task, add, task.answer) is None
    grade = tools.grade_episode(task, said(add, task.answer))[0].grade  # type: ignore[attr-defined]
    assert (grade.reward, grade.components["add_calls"], grade.components["shout_calls"]) == (1.0, 1.0, 0.0)


def test_the_librarys_reasoning_gym_environment(load: Load) -> None:
    gym = load("vf-gym")
    assert (gym.num_tasks, gym.num_heldout_tasks) == (12, 4)
    task = gym.task("heldout", 2)
    from reasoning_gym import create_dataset

    answer = create_dataset("chain_sum", size=16, seed=0)[int(task.answer)]["answer"]
    assert gym.grade(task, f"<answer>{answer}</answer>").correct == 1.0
    assert gym.grade(task, "<answer>none</answer>").correct == 0.0


def test_the_librarys_gym_environment(load: Load) -> None:
    walk = load("vf-walk")
    assert isinstance(walk, Episodic)
    assert walk.max_turns == 5
    task = walk.task("train", 1)
    assert "goal 2" in task.messages[0].content
    told = play(walk, task, "right")
    assert told is not None
    assert told.messages[0].content == "at 1"
    over = play(walk, task, "right", "right")
    assert over is not None, "the library asks once more before it looks whether a gym is done"
    assert over.messages[0].content.startswith("at 2\nEpisode already ended")
    assert play(walk, task, "right", "right", "so be it") is None
    assert walk.grade_episode(task, said("right", "right", "so be it"))[0].grade.reward == 1.0
    assert walk.grade_episode(task, said("right", "left", "left"))[0].grade.reward == 0.0


def test_a_group_of_environments_plays_each_row_by_its_own(load: Load) -> None:
    both = load("vf-both")
    kinds = {both.task("train", index).messages[0].role for index in range(both.num_tasks)}
    assert kinds == {"system", "user"}
    last = both.task("train", both.num_tasks - 1)
    assert play(both, last, "99") is not None
    assert both.grade(last, last.answer).components["found"] == 1.0


def test_a_judge_makes_an_environment_unreproducible_and_its_absence_is_not_a_wrong_answer(load: Load) -> None:
    judged = load("vf-judged")
    assert not is_reproducible(judged)
    assert is_reproducible(load("vf-sums"))
    assert judged.grade(judged.task("train", 0), "1").reward is None


@pytest.mark.parametrize(
    ("name", "args", "sentence"),
    [
        ("vf-grouped", {}, "compare a whole group"),
        ("vf-broken", {}, "No module named 'nothing_of_this_name'"),
        ("vf-raising", {}, "cannot be loaded: FileNotFoundError: nowhere"),
        ("vf-raising", {"pth": "x"}, "has no argument pth; it has path"),
        ("vf-sums", {"time_limit_s": -1}, "time_limit_s"),
        ("json", {}, "no installed package that requires verifiers"),
        ("vf-stranger", {}, "no installed package that requires verifiers"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_the_reason(
    load: Load, name: str, args: dict[str, EnvArg], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        load(name, **args)
