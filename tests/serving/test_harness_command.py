"""A harness that is a program: what it is told, what it says, and how it ends."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from farflung.errors import UserError
from farflung.serving.harness.command import CommandHarness, outcome_of
from farflung.serving.harness.protocol import Attempt, Outcome, in_thread
from farflung.wire.task import Message, Task

TASK = Task(env="e", task_id="train/3", messages=(Message(role="user", content="2+2?"),), answer="4")
ATTEMPT = Attempt(task=TASK, sample=1, base_url="http://here/v1", api_key="secret", model="tiny")


async def run(program: str, timeout_s: float = 20.0) -> Outcome:
    return await CommandHarness([sys.executable, "-c", program], timeout_s=timeout_s)(ATTEMPT)


async def test_a_program_is_told_the_task_and_where_the_model_is() -> None:
    outcome = await run(
        "import json, os, sys; task = json.load(sys.stdin); "
        "assert (task['answer'], task['messages'][0]['content'], task['sample']) == ('4', '2+2?', 1); "
        "assert os.environ['OPENAI_BASE_URL'] == 'http://here/v1' and os.environ['OPENAI_API_KEY'] == 'secret'; "
        "assert os.environ['FARFLUNG_MODEL'] == 'tiny' and os.environ['FARFLUNG_TASK_ID'] == 'train/3'; "
        "print('reward = 0.25')"
    )
    assert outcome == Outcome(reward=0.25)


@pytest.mark.parametrize(
    ("lines", "outcome"),
    [
        (["reward = 1"], Outcome(reward=1.0)),
        (["Reward: -0.5", "bye"], Outcome(reward=-0.5)),
        (["reward=0", "reward=1"], Outcome(reward=1.0)),
        (['{"reward": 0.5, "correct": true}'], Outcome(reward=0.5, correct=1.0)),
        (['{"reward": "high"}', "reward: nan", "reward: soon", "{", "rewards = 2"], Outcome()),
        (["the reward = 3"], Outcome()),
        ([], Outcome()),
    ],
)
def test_the_last_line_that_tells_a_reward_counts(lines: list[str], outcome: Outcome) -> None:
    assert outcome_of(lines) == outcome


async def test_a_program_that_fails_has_no_outcome() -> None:
    outcome = await run("import sys; print('reward = 1'); sys.exit('no luck')")
    assert outcome.reward is None
    assert outcome.problem == "it ended with 1: no luck"


async def test_a_program_need_not_read_what_it_is_told() -> None:
    assert (await run("print('reward = 1')")).reward == 1.0


async def test_a_line_without_end_is_a_problem() -> None:
    assert "a line of more than" in (await run("print('x' * (3 << 20))")).problem


async def test_a_program_that_hangs_is_stopped_with_what_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    program = (
        "import subprocess, sys, time; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        f"open({str(note)!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    outcome = await run(program, timeout_s=2.0)
    assert outcome.problem == "not done after 2 s"
    child = int(note.read_text())
    for _ in range(100):
        if _is_gone(child):
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"process {child} is still there")


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


async def test_a_program_that_is_not_there_is_the_users_to_mend() -> None:
    with pytest.raises(UserError, match="--harness nothing-of-this-name cannot be started: No such file"):
        await CommandHarness(["nothing-of-this-name"], timeout_s=1.0)(ATTEMPT)


async def test_a_function_is_a_harness_and_its_error_a_problem() -> None:
    assert await in_thread(lambda attempt: float(attempt.task.answer))(ATTEMPT) == Outcome(reward=4.0)
    assert (await in_thread(lambda attempt: 1 / 0)(ATTEMPT)).problem == "ZeroDivisionError: division by zero"
