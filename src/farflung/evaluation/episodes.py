"""Episodes of an evaluation: tasks in, what every agent of every attempt made of them out.

Does not know files or what is made of the rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from farflung.engine.base import Engine, SamplingParams
from farflung.engine.rounds import Seat, play
from farflung.envs.base import Environment, Grade
from farflung.envs.episode import as_episodic
from farflung.envs.playing import Episode, EpisodeFault, EpisodeLimits
from farflung.errors import OurFault
from farflung.model.tokenizer import Tokenizer
from farflung.wire.task import Task

NO_LIMIT = 1 << 31


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """One agent's part in an attempt."""

    group: int
    """Key of the task."""
    sample: int
    """attempt * agents + agent."""
    task: Task
    text: str
    """Of its row: its turns, and what it was told in between."""
    num_tokens: int
    """That it said."""
    is_truncated: bool
    grade: Grade


def play_tasks(
    engine: Engine,
    environment: Environment,
    tokenizer: Tokenizer,
    tasks: Mapping[int, Task],
    params: SamplingParams,
    draw_seed: bytes,
    *,
    num_samples: int,
    max_prompt_tokens: int = NO_LIMIT,
) -> Iterator[Played]:
    """Every agent of every attempt, by (key of the task, sample); tasks that cannot be played are left out.

    Raises:
        OurFault: the environment failed.
    """
    episodic = as_episodic(environment)
    limits = EpisodeLimits(
        max_prompt_tokens=max_prompt_tokens,
        max_completion_tokens=params.max_completion_tokens,
        eos_token_ids=frozenset(params.eos_token_ids),
    )
    seats = [
        Seat(group=group, number=number, episode=Episode(tokenizer, episodic, task, limits))
        for group, task in sorted(tasks.items())
        for number in range(num_samples)
    ]
    play(engine, seats, params, draw_seed)
    unplayable = {seat.group for seat in seats if seat.episode.unplayable}
    for seat in seats:
        if seat.group not in unplayable:
            yield from _played(seat, environment, tokenizer)


def _played(seat: Seat, environment: Environment, tokenizer: Tokenizer) -> Iterator[Played]:
    episode = seat.episode
    try:
        grades = episode.grades(float("inf"))
    except EpisodeFault as fault:
        raise OurFault(f"environment {environment.name}: {fault} (task {episode.task.task_id})") from fault
    for agent, (view, graded) in enumerate(zip(episode.views, grades, strict=True)):
        yield Played(
            group=seat.group,
            sample=seat.sample_of(agent),
            task=episode.task,
            text=tokenizer.decode(view.completion_tokens.tolist()),
            num_tokens=sum(end - start for start, end in view.spans),
            is_truncated=not episode.ends_in_eos(agent),
            grade=graded.grade,
        )
