"""Several samples of every task of an environment's split, graded, chunk by chunk.

Does not know files or what is made of the rows.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from farflung.engine.base import Completion, Engine, GroupRequest, SamplingParams
from farflung.envs.base import Environment, Split, level_of
from farflung.envs.episode import Episodic
from farflung.evaluation.episodes import Played, play_tasks
from farflung.evaluation.heldout import ChatTokenizer
from farflung.evaluation.records import SampleRow
from farflung.evaluation.scores import TaskSamples
from farflung.model.tokenizer import Tokenizer
from farflung.rewards.extract import after_thinking, boxed, final_answer, tagged
from farflung.wire.rollout import StopReason
from farflung.wire.task import Task


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkPlan:
    """What is sampled."""

    split: Split
    num_tasks: int
    num_samples: int
    """Per task."""
    chunk_tasks: int
    """Tasks between two times that rows are handed out."""
    draw_seed: bytes
    max_prompt_tokens: int
    """Longer prompts are skipped and counted, never cut."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    rows: tuple[SampleRow, ...]
    num_skipped: int
    """Tasks whose prompt is too long."""


def sample_chunks(
    engine: Engine,
    environment: Environment,
    tokenizer: ChatTokenizer,
    params: SamplingParams,
    plan: BenchmarkPlan,
    done: Collection[int] = (),
) -> Iterator[Chunk]:
    """Rows of the tasks that are not `done`, in task order.

    A task's samples depend on its index, the weights, the params and the seed alone, so that it does not matter where
    an evaluation was interrupted.
    """
    wanted = [index for index in range(plan.num_tasks) if index not in done]
    targets = environment.target_lengths or (0,)
    for start in range(0, len(wanted), plan.chunk_tasks):
        tasks, requests = {}, []
        indices = wanted[start : start + plan.chunk_tasks]
        if isinstance(environment, Episodic):
            asked = {index: environment.task(plan.split, index, targets[index % len(targets)]) for index in indices}
            yield _episodes(engine, environment, tokenizer, params, plan, asked)
            continue
        for index in indices:
            task = environment.task(plan.split, index, targets[index % len(targets)])
            prompt = tokenizer.encode_chat(task.messages)
            if len(prompt) <= plan.max_prompt_tokens:
                tasks[index] = task
                requests.append(
                    GroupRequest(
                        group=index, prompt_tokens=np.array(prompt, dtype=np.int32), num_samples=plan.num_samples
                    )
                )
        completions = engine.generate(requests, params, plan.draw_seed)
        rows = tuple(_row(environment, tokenizer, tasks[made.group], made) for made in completions)
        yield Chunk(rows=rows, num_skipped=len(indices) - len(requests))


def task_samples(rows: Sequence[SampleRow]) -> list[TaskSamples]:
    """Graded samples by task, in order of tasks."""
    by_task: dict[int, list[SampleRow]] = {}
    for row in rows:
        if row.correct is not None:
            by_task.setdefault(row.task, []).append(row)
    return [
        TaskSamples(
            correct=tuple(row.correct or 0.0 for row in group),
            answers=tuple(vote(row.completion) for row in group),
        )
        for _, group in sorted(by_task.items())
    ]


def vote(completion: str) -> str:
    """What a completion answers: its marked answer, else all that follows the thinking part."""
    spoken = after_thinking(completion)
    if spoken is None:
        return ""
    return tagged(spoken) or boxed(spoken) or final_answer(completion) or spoken.strip()


def _row(environment: Environment, tokenizer: ChatTokenizer, task: Task, made: Completion) -> SampleRow:
    text = tokenizer.decode(made.tokens.tolist())
    return _row_of(
        Played(
            group=made.group,
            sample=made.sample,
            task=task,
            text=text,
            num_tokens=len(made.tokens),
            is_truncated=made.stop_reason is StopReason.LENGTH,
            grade=environment.grade(task, text),
        ),
        environment,
    )


def _episodes(
    engine: Engine,
    environment: Environment,
    tokenizer: ChatTokenizer,
    params: SamplingParams,
    plan: BenchmarkPlan,
    tasks: Mapping[int, Task],
) -> Chunk:
    """Every agent of every attempt has a row."""
    assert isinstance(tokenizer, Tokenizer), "episodes need a whole tokenizer"
    played = play_tasks(
        engine,
        environment,
        tokenizer,
        tasks,
        params,
        plan.draw_seed,
        num_samples=plan.num_samples,
        max_prompt_tokens=plan.max_prompt_tokens,
    )
    rows = tuple(_row_of(each, environment) for each in played)
    return Chunk(rows=rows, num_skipped=len(tasks) - len({row.task for row in rows}))


def _row_of(played: Played, environment: Environment) -> SampleRow:
    grade = played.grade
    correct = grade.correct
    if correct is None and grade.reward is not None:
        correct = float(grade.reward >= 1.0)
    return SampleRow(
        task=played.group,
        sample=played.sample,
        task_id=played.task.task_id,
        completion=played.text,
        num_tokens=played.num_tokens,
        is_truncated=played.is_truncated,
        reward=grade.reward,
        correct=correct,
        level=level_of(environment, played.task),
    )
