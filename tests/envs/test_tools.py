"""Calls of tools, read from what a model wrote, and episodes with them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.envs.base import Grade, is_reproducible
from farflung.envs.episode import AgentTurn, Episodic
from farflung.envs.playing import Episode, EpisodeLimits
from farflung.envs.python_tool import python_tool
from farflung.envs.replay import Claim, replay
from farflung.envs.tool_episodes import ToolEpisodes
from farflung.envs.tools import MAX_CALL_CHARS, MAX_CALLS, Tool, Toolbox, ToolRefusal
from farflung.errors import UserError
from farflung.model.characters import character_tokenizer
from farflung.model.tokenizer import Tokenizer
from farflung.sandbox.code.config import CodePoolConfig
from farflung.sandbox.code.pool import CodePool
from farflung.sandbox.isolation.limits import Limits
from farflung.wire.task import Message, Task

PAIR = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def divide(arguments: Mapping[str, Any]) -> str:
    if arguments["b"] == 0:
        raise ToolRefusal("there is no division by 0")
    return str(arguments["a"] // arguments["b"])


DIVIDE = Tool(name="divide", description="Whole part of a / b.", parameters=PAIR, run=divide)
BOX = Toolbox([DIVIDE])


def call(name: str = "divide", **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def told(text: str, box: Toolbox = BOX) -> list[str]:
    messages = box.answer(text)
    assert {message.role for message in messages} <= {"tool"}
    return [message.content for message in messages]


def test_an_argument_is_text_and_never_run() -> None:  # case 38
    seen: list[object] = []
    echo = Tool(name="echo", description="", parameters={"type": "object"}, run=lambda a: str(seen.append(a["x"])))
    told(call("echo", x="__import__('os').getpid()"), Toolbox([echo]))
    assert seen == ["__import__('os').getpid()"]
    (answer,) = told("<tool_call>{'name': 'divide', 'arguments': {'a': __import__('os').getpid(), 'b': 1}}</tool_call>")
    assert "no JSON" in answer


def test_each_call_is_answered_in_its_order() -> None:
    assert told(f"Let me see. {call(a=84, b=2)} and\n{call(a=7, b=2)}") == ["42", "3"]
    assert told("no call at all") == []
    assert told("<tool_call>" + call(a=1, b=1)[11:-12]) == []  # not closed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (call(a=1, b=0), "no division by 0"),
        (call("multiply", a=1, b=2), "no such tool; there are divide"),
        (call(a=1), "arguments of divide"),
        (call(a=1, b="2"), "arguments of divide"),
        (call(a=1, b=2, c=3), "arguments of divide"),
        ("<tool_call>divide(1, 2)</tool_call>", "no JSON"),
        ("<tool_call></tool_call>", "no JSON"),
        ("<tool_call>[]</tool_call>", "no such tool"),
        ('<tool_call>{"name": ["divide"]}</tool_call>', "no such tool"),
        ('<tool_call>{"name": "divide", "arguments": [1, 2]}</tool_call>', "arguments of divide"),
        ('<tool_call>{"name": "divide", "name": "x"}</tool_call>', "a key comes twice"),
        (f"<tool_call>{'[' * 100}{']' * 100}</tool_call>", "nested deeper"),
        (f"<tool_call>{'x' * (MAX_CALL_CHARS + 1)}</tool_call>", "at most"),
        ('<tool_call>{"name": "divide", "arguments": {"a": 1e999, "b": 1}}</tool_call>', "too large"),
    ],
)
def test_a_call_that_cannot_be_carried_out_is_answered_with_a_sentence(text: str, words: str) -> None:
    (answer,) = told(text)
    assert answer.startswith("error: ")
    assert words in answer


def test_later_calls_than_a_turn_may_have_are_not_looked_at() -> None:
    assert len(told(call(a=4, b=2) * (MAX_CALLS + 3))) == MAX_CALLS


def test_a_long_output_loses_its_middle() -> None:
    long = Tool(name="long", description="", parameters={"type": "object"}, run=lambda _: "a" * 50 + "z" * 50)
    (answer,) = told(call("long"), Toolbox([long], max_output_chars=20))
    assert answer == "a" * 10 + "\n... 80 characters left out ...\n" + "z" * 10


PIECES = [*'<>/tool_cal{}[]": ,0', "<tool_call>", "</tool_call>", '"name"', '"divide"']


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_no_text_raises(text: str) -> None:
    for answer in told(text):
        assert answer.startswith("error: ")


def test_a_box_says_what_is_in_it_and_refuses_what_is_no_schema() -> None:
    assert json.dumps({"a": {"type": "integer"}, "b": {"type": "integer"}}) in BOX.instructions
    assert BOX.is_reproducible
    with pytest.raises(ValueError, match="two have one name"):
        Toolbox([DIVIDE, DIVIDE])
    with pytest.raises(ValueError, match="no JSON Schema"):
        Toolbox([Tool(name="x", description="", parameters={"type": "nonsense"}, run=divide)])


class Halves(ToolEpisodes):
    """What is half of 84?"""

    name = "halves"
    num_tasks = num_heldout_tasks = 1

    def grade_answer(self, task: Task, answer: str) -> Grade:
        return Grade(reward=float(answer == task.answer))


TASK = Task(env="halves", task_id="train/0", messages=(Message(role="user", content="half of 84?"),), answer="42")


def tokenizer() -> Tokenizer:
    return character_tokenizer("".join(map(chr, range(32, 127))) + "\n")


def test_an_episode_with_tools_goes_on_until_a_turn_calls_nothing_and_can_be_replayed() -> None:
    made, environment = tokenizer(), Halves(BOX)
    assert isinstance(environment, Episodic)
    (eos,) = made.eos_token_ids
    limits = EpisodeLimits(max_prompt_tokens=2000, max_completion_tokens=500, eos_token_ids=frozenset([eos]))
    episode = Episode(made, environment, TASK, limits)
    assert episode.pending is not None
    assert "divide" in made.decode(episode.pending.tokens.tolist())
    episode.take([*made.encode(call(a=84, b=2)), eos])
    assert episode.pending is not None
    assert made.decode(episode.pending.tokens.tolist()).endswith("</tool_call>42")
    episode.take([*made.encode("42"), eos])
    assert episode.pending is None
    assert episode.grades(1.0)[0].grade.reward == 1.0
    (view,) = episode.views
    claim = Claim(prompt_tokens=view.prompt_tokens, completion_tokens=view.completion_tokens)
    assert replay(Episode(made, environment, TASK, limits), [claim], [eos]) == ""
    edited = view.completion_tokens.copy()
    edited[view.spans[0][1]] = made.encode("9")[0]  # the tool said 92, claims the worker
    forged = Claim(prompt_tokens=view.prompt_tokens, completion_tokens=edited)
    assert "not what the environment says" in replay(Episode(made, environment, TASK, limits), [forged], [eos])


def test_a_bug_of_a_tool_is_the_environments_fault() -> None:
    broken = Tool(name="divide", description="", parameters=PAIR, run=lambda _: str(1 // 0))
    with pytest.raises(ZeroDivisionError):
        Halves(Toolbox([broken])).next_ask(TASK, [AgentTurn(agent=0, text=call(a=1, b=1))])


@pytest.fixture(scope="module")
def walls() -> Iterator[CodePool]:
    limits = Limits(test_cpu_s=1.0, test_wall_s=5.0, total_wall_s=10.0)
    try:
        pool = CodePool(CodePoolConfig(limits=limits))
    except UserError as error:
        pytest.skip(str(error))
    with pool:
        yield pool


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("print(6 * 7)", "42"),
        ("print(1 / 0)", "error: exit code 1: ZeroDivisionError: division by zero"),
        ("while True: pass", "error: the program went over its time limit"),
        ("import random; print(random.random())", "error: the program does not print the same every time"),
        ("", ""),
    ],
)
def test_a_program_is_told_what_it_printed(walls: CodePool, code: str, answer: str) -> None:
    box = Toolbox([python_tool(walls)])
    assert told(call("python", code=code), box) == [answer]


def test_a_python_tool_is_for_runs_that_nobody_replays() -> None:
    assert not is_reproducible(Halves(Toolbox([DIVIDE, python_tool()])))  # type: ignore[arg-type]
    assert is_reproducible(Halves(BOX))  # type: ignore[arg-type]
