"""`farflung eval --harness COMMAND`: a program of the user's asks the model, and says what each attempt was worth.

Beside `samples.jsonl`, `conversations.jsonl` has every conversation as token ids, drawn ones told apart.
"""

import asyncio
import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from farflung.envs.base import Environment, Split, level_of
from farflung.envs.episode import num_agents_of
from farflung.errors import UserError
from farflung.evaluation.records import SampleFile, SampleRow
from farflung.serving.config import ServeConfig
from farflung.serving.harness.command import CommandHarness
from farflung.serving.harness.runs import Attempted, attempt_tasks, require_asked
from farflung.serving.recording import as_json
from farflung.serving.service import listening

CONVERSATIONS = "conversations.jsonl"
_ROUNDS = 4
"""Attempts that wait for a place, for each that runs, between two times that results are made durable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HarnessPlan:
    command: str
    """As one would type it."""
    timeout_s: float
    """Of one attempt."""
    num_parallel: int
    """Attempts at a time."""
    num_samples: int
    """Attempts at each task."""
    split: Split
    indices: Sequence[int]
    """Tasks, of the environment's split."""
    max_tokens: int
    """Of answers whose request names no limit."""
    seed: int
    """Of the draws of requests that name none."""


def _words(command: str) -> list[str]:
    """Raises UserError: no command, or one whose quotes do not end."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--harness {command} cannot be split into words: {str(error).lower()}") from error
    if not words:
        raise UserError("--harness is empty: it must be a command, such as 'python my_harness.py'")
    return words


def sample_by_harness(
    plan: HarnessPlan,
    model: Path,
    adapter: Path | None,
    environment: Environment,
    file: SampleFile,
    folder: Path,
    on_done: Callable[[int], None],
) -> None:
    """Fill the file.

    Args:
        folder: where `CONVERSATIONS` goes.
        on_done: called with how many more tasks are done.

    Raises:
        UserError: the command cannot be started, or the environment has several agents.
        OurFault: the harness never asks the model.
    """
    words = _words(plan.command)
    if num_agents_of(environment) > 1:
        raise UserError(f"environment {environment.name} has several agents: a harness can play one alone")
    harness = CommandHarness(words, timeout_s=plan.timeout_s)
    config = ServeConfig(
        port=0, default_max_tokens=plan.max_tokens, max_concurrency=max(32, plan.num_parallel), max_waiting=4096
    )
    num_chunk = max(1, _ROUNDS * plan.num_parallel // plan.num_samples)

    async def all_of_them() -> None:
        async with listening(model, config, adapter=adapter, is_recording=True) as server:
            for start in range(0, len(plan.indices), num_chunk):
                indices = plan.indices[start : start + num_chunk]
                attempts = await attempt_tasks(
                    server,
                    harness,
                    environment,
                    {index: environment.task(plan.split, index) for index in indices},
                    num_samples=plan.num_samples,
                    num_parallel=plan.num_parallel,
                    seed=plan.seed,
                )
                require_asked(attempts)
                _append(folder / CONVERSATIONS, map(_conversation_row, attempts))
                file.append(_sample_row(each, environment) for each in attempts)
                on_done(len(indices))

    asyncio.run(all_of_them())


def _sample_row(attempt: Attempted, environment: Environment) -> SampleRow:
    return SampleRow(
        task=attempt.group,
        sample=attempt.sample,
        task_id=attempt.task.task_id,
        completion=attempt.text,
        num_tokens=attempt.num_tokens,
        is_truncated=attempt.is_truncated,
        reward=attempt.grade.reward,
        correct=attempt.grade.correct,
        level=level_of(environment, attempt.task),
    )


def _conversation_row(attempt: Attempted) -> str:
    return json.dumps(
        {
            "task": attempt.group,
            "sample": attempt.sample,
            "task_id": attempt.task.task_id,
            "reward": attempt.grade.reward,
            "problem": attempt.problem,
            "conversations": [as_json(each) for each in attempt.conversations],
        }
    )


def _append(path: Path, lines: Iterable[str]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
