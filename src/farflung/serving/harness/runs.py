"""Attempts of a harness at tasks, several at a time, over one recording server.

    asked       its requests, with a key of the attempt's own
    recorded    its conversations, as drawn (`serving.recording`)
    graded      by the reward that the harness tells; else by the environment, on the text of its last answer

This module does not know files.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from farflung.envs.base import Environment, Grade
from farflung.envs.episode import Episodic
from farflung.errors import OurFault
from farflung.serving.harness.protocol import Attempt, Harness, Outcome
from farflung.serving.recording import Answer, Recorded
from farflung.serving.service import Listening
from farflung.wire.task import Task

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempted:
    """What came of one attempt."""

    group: int
    """Key of the task."""
    sample: int
    task: Task
    grade: Grade
    conversations: list[Recorded]
    text: str
    """Of its last answer."""
    num_tokens: int
    """Drawn in all of them."""
    is_truncated: bool
    """Its last answer reached its limit."""
    problem: str


async def attempt_tasks(
    server: Listening,
    harness: Harness,
    environment: Environment,
    tasks: Mapping[int, Task],
    *,
    num_samples: int,
    num_parallel: int,
    seed: int,
) -> list[Attempted]:
    """Every attempt at every task, by (key of the task, sample).

    Args:
        server: one that records.
        seed: of the draws of requests that name none.

    Raises:
        UserError: the harness cannot be started.
    """
    free = asyncio.Semaphore(num_parallel)

    async def one(group: int, task: Task, sample: int) -> Attempted:
        async with free:
            return await _attempt(server, harness, environment, group, task, sample, f"{seed}/{group}/{sample}")

    running = [
        asyncio.create_task(one(group, task, sample))
        for group, task in sorted(tasks.items())
        for sample in range(num_samples)
    ]
    try:
        return await asyncio.gather(*running)
    finally:  # no program outlives a failure or an interrupt
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _attempt(
    server: Listening, harness: Harness, environment: Environment, group: int, task: Task, sample: int, seed: str
) -> Attempted:
    recorder = server.recorder
    assert recorder is not None, "the server does not record"
    key = recorder.open(seed)
    try:
        outcome = await harness(Attempt(task=task, sample=sample, base_url=server.url, api_key=key, model=server.model))
    finally:
        session = recorder.close(key)
    if outcome.problem:
        logger.warning("attempt %d at task %s: %s", sample, task.task_id, outcome.problem)
    last = session.answers[-1] if session.answers else None
    return Attempted(
        group=group,
        sample=sample,
        task=task,
        grade=_grade(environment, task, outcome, last),
        conversations=session.conversations(),
        text=last.text if last else "",
        num_tokens=sum(len(each.tokens) for each in session.answers),
        is_truncated=last is not None and last.ending == "length",
        problem=outcome.problem,
    )


def _grade(environment: Environment, task: Task, outcome: Outcome, last: Answer | None) -> Grade:
    if outcome.problem:
        return Grade(reward=None)
    if outcome.reward is not None:
        correct = float(outcome.reward >= 1.0) if outcome.correct is None else outcome.correct
        return Grade(reward=outcome.reward, correct=correct)
    if last is None or isinstance(environment, Episodic):
        return Grade(reward=None)
    return environment.grade(task, last.text)


def require_asked(attempts: Iterable[Attempted]) -> None:
    """Raises OurFault: no attempt asked the model anything, so that what was measured is not the model."""
    if all(not each.num_tokens for each in attempts):
        raise OurFault(
            "the harness never asked the model: let it use OPENAI_BASE_URL and OPENAI_API_KEY, as OpenAI's client does"
        )
