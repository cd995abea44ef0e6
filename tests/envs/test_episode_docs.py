"""The environments that the documentation of episodes shows do what it says."""

import re
from pathlib import Path
from typing import Any

import pytest

from farflung.envs.base import is_reproducible
from farflung.envs.episode import AgentTurn, Episodic
from farflung.envs.playable import require_playable
from farflung.model.characters import character_tokenizer

DOCUMENT = Path(__file__).parents[2] / "docs" / "episodes.md"


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """Names that the code of the document defines."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, names)
    return names


def said(text: str) -> AgentTurn:
    return AgentTurn(agent=0, text=text)


def test_the_guessing_game_is_an_environment_of_episodes(shown: dict[str, Any]) -> None:
    env = shown["HighLow"](0, {})
    assert isinstance(env, Episodic)
    require_playable(env, character_tokenizer(env.alphabet()))  # type: ignore[arg-type]
    task = env.task("train", 3)  # type: ignore[attr-defined]
    first = env.next_ask(task, [])
    assert first is not None
    assert first.messages == task.messages
    higher = env.next_ask(task, [said("a")])
    assert higher is not None
    assert higher.messages[0].content == "+"
    assert env.next_ask(task, [said("a"), said("d")]) is None
    assert env.grade_episode(task, [said("a"), said("d")])[0].grade.reward == 1.0
    assert env.grade_episode(task, [said("a")])[0].grade.reward == 0.0


def test_the_environment_with_a_tool_answers_calls(shown: dict[str, Any]) -> None:
    products = shown["Products"](0, {})
    assert is_reproducible(products)
    call = '<tool_call>{"name": "times", "arguments": {"a": 6, "b": 7}}</tool_call>'
    assert [message.content for message in products.toolbox.answer(call)] == ["42"]
