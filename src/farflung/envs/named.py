"""An environment whose faults carry its name: what it raises inside a role says whose fault it is.

The one place where any exception of an environment is caught, because an environment is other people's code.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from farflung.envs.base import Environment, Grade, Split, graders_of, is_reproducible, level_of, strata_of
from farflung.envs.episode import AgentTurn, Ask, DemonstratesTurns, EpisodeGrade, Episodic
from farflung.errors import FarflungError, OurFault
from farflung.wire.task import Task

Answer = TypeVar("Answer")


class NamedEnvironment:
    """Passes every call on; implements `Environment`."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.name = environment.name
        self.num_tasks = environment.num_tasks
        self.num_heldout_tasks = environment.num_heldout_tasks
        self.target_lengths = environment.target_lengths
        self.strata = strata_of(environment)
        self.graders = graders_of(environment)
        self.is_reproducible = is_reproducible(environment)

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        return self._ask(f"making task {split}/{index}", lambda: self._environment.task(split, index, target_length))

    def grade(self, task: Task, completion: str) -> Grade:
        return self._ask(f"grading task {task.task_id}", lambda: self._environment.grade(task, completion))

    def demonstration(self, task: Task, draw: int) -> str | None:
        return self._ask(f"demonstrating task {task.task_id}", lambda: self._environment.demonstration(task, draw))

    def level(self, task: Task) -> str:
        return self._ask(f"naming the level of task {task.task_id}", lambda: level_of(self._environment, task))

    def alphabet(self) -> str | None:
        return self._environment.alphabet()

    def _ask(self, what: str, call: Callable[[], Answer]) -> Answer:
        """Raises `OurFault` naming the environment for whatever the call raises, except this package's own errors."""
        try:
            return call()
        except FarflungError:
            raise
        except Exception as error:
            raise OurFault(f"environment {self.name} failed when {what}: {type(error).__name__}: {error}") from error


class NamedEpisodes(NamedEnvironment):
    """One that is `Episodic`, and may show turns."""

    def __init__(self, environment: Environment, episodic: Episodic) -> None:
        super().__init__(environment)
        self._episodic = episodic
        self.num_agents = episodic.num_agents
        self.max_turns = episodic.max_turns
        self.max_turn_tokens = episodic.max_turn_tokens

    def next_ask(self, task: Task, turns: Sequence[AgentTurn]) -> Ask | None:
        return self._ask(f"playing task {task.task_id}", lambda: self._episodic.next_ask(task, turns))

    def grade_episode(self, task: Task, turns: Sequence[AgentTurn]) -> tuple[EpisodeGrade, ...]:
        return self._ask(f"grading task {task.task_id}", lambda: self._episodic.grade_episode(task, turns))

    def demonstrate_turn(self, task: Task, turns: Sequence[AgentTurn], draw: int) -> str | None:
        shows = self._environment
        if not isinstance(shows, DemonstratesTurns):
            return None
        return self._ask(f"demonstrating task {task.task_id}", lambda: shows.demonstrate_turn(task, turns, draw))


def named(environment: Environment) -> NamedEnvironment:
    """With all that it can do."""
    if isinstance(environment, Episodic):
        return NamedEpisodes(environment, environment)
    return NamedEnvironment(environment)
