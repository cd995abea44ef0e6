"""`Environment` whose every call is a question to a child (`envs.guest.process`).

What comes back is converted to the types of the interface and checked against what was asked: a task is of the
environment that was loaded, and a grade is numbers under few names. This module does not know walls.
"""

import weakref
from collections.abc import Sequence

from farflung.envs.base import Grade, Split
from farflung.envs.episode import AgentTurn, Ask, EpisodeGrade
from farflung.envs.guest.process import GuestProcess, GuestSource, GuestTimes
from farflung.envs.guest.protocol import Description, check_grade
from farflung.errors import OurFault
from farflung.wire.task import Task


class GuestEnvironment:
    """Implements `Environment`, and what it may know besides."""

    def __init__(self, process: GuestProcess, description: Description) -> None:
        self._process = process
        self.name = description.name
        self.num_tasks = description.num_tasks
        self.num_heldout_tasks = description.num_heldout_tasks
        self.target_lengths = description.target_lengths
        self.strata = description.strata
        self.graders = description.graders
        self.is_reproducible = description.is_reproducible
        self.arguments = description.arguments
        self._alphabet = description.alphabet
        self.close = weakref.finalize(self, process.close)

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        task = self._process.ask("task", Task, split, index, target_length)
        if (task.env, task.target_length) != (self.name, target_length):
            raise OurFault(f"environment {self.name} gave a task of {task.env} with target {task.target_length}")
        return task

    def grade(self, task: Task, completion: str) -> Grade:
        return _checked(self.name, self._process.ask("grade", Grade, task, completion))

    def demonstration(self, task: Task, draw: int) -> str | None:
        return self._process.ask("demonstration", str | None, task, draw)  # type: ignore[arg-type]

    def level(self, task: Task) -> str:
        return self._process.ask("level", str, task)

    def alphabet(self) -> str | None:
        return self._alphabet


class GuestEpisodes(GuestEnvironment):
    """One that is `Episodic`."""

    def __init__(self, process: GuestProcess, description: Description) -> None:
        super().__init__(process, description)
        self.num_agents = description.num_agents
        self.max_turns = description.max_turns
        self.max_turn_tokens = description.max_turn_tokens

    def next_ask(self, task: Task, turns: Sequence[AgentTurn]) -> Ask | None:
        return self._process.ask("next_ask", Ask | None, task, tuple(turns))  # type: ignore[arg-type]

    def grade_episode(self, task: Task, turns: Sequence[AgentTurn]) -> tuple[EpisodeGrade, ...]:
        grades = self._process.ask("grade_episode", tuple[EpisodeGrade, ...], task, tuple(turns))
        if len(grades) != self.num_agents:
            raise OurFault(f"environment {self.name} graded {len(grades)} agents of {self.num_agents}")
        for each in grades:
            _checked(self.name, each.grade)
        return grades

    def demonstrate_turn(self, task: Task, turns: Sequence[AgentTurn], draw: int) -> str | None:
        return self._process.ask("demonstrate_turn", str | None, task, tuple(turns), draw)  # type: ignore[arg-type]


def load_guest(source: GuestSource, times: GuestTimes | None = None) -> GuestEnvironment:
    """The environment, in a child that runs from now on.

    Raises:
        NoWalls: nothing can be shut in here.
        UserError: the environment refuses its arguments.
        OurFault: it cannot be loaded within its limits.
    """
    process = GuestProcess(source, times=times)
    try:
        description = process.describe()
    except BaseException:
        process.close()
        raise
    return GuestEpisodes(process, description) if description.num_agents else GuestEnvironment(process, description)


def _checked(name: str, grade: Grade) -> Grade:
    try:
        check_grade(grade)
    except ValueError as error:
        raise OurFault(f"environment {name}: {error}") from error
    return grade
