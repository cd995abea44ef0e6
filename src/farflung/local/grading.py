"""What completions are worth, by an environment that is trusted not to hang, but not to be without faults."""

from collections import Counter
from collections.abc import Callable, Sequence

from farflung.envs.base import Environment, Grade
from farflung.envs.episode import EpisodeGrade
from farflung.envs.playing import Episode
from farflung.wire.task import Task

UNGRADED = Grade(reward=None)


class Grader:
    """Grades, and counts what went wrong: a completion whose grading fails has no reward."""

    def __init__(self, environment: Environment, decode: Callable[[Sequence[int]], str], max_abs_reward: float) -> None:
        self._environment = environment
        self._decode = decode
        self._max_abs_reward = max_abs_reward
        self._faults: Counter[str] = Counter()
        self.first_fault = ""
        """What went wrong first in the sampler's life."""

    def grade(self, task: Task, tokens: Sequence[int]) -> Grade:
        """Never raises for what the environment does."""
        text = self._decode(tokens)
        try:
            grade = self._environment.grade(task, text)
            problem = grade.out_of_range(self._max_abs_reward)
        except Exception as error:  # noqa: BLE001 - the boundary to the environment, which is other people's code
            self._note(type(error).__name__, f"{type(error).__name__}: {error} (task {task.task_id})")
            return UNGRADED
        if problem:
            self._note("RewardOutOfRange", f"{problem} (task {task.task_id})")
            return UNGRADED
        return grade

    def grade_episode(self, episode: Episode) -> tuple[EpisodeGrade, ...]:
        """[agents] Never raises for what the environment does, in play or in grading."""
        try:
            return episode.grades(self._max_abs_reward)
        except Exception as error:  # noqa: BLE001 - the boundary to the environment, which is other people's code
            kind = episode.fault_kind or type(error).__name__
            detail = f"{kind}: {error} (task {episode.task.task_id})"
            for _ in range(episode.num_agents):
                self._note(kind, detail)
            return (EpisodeGrade(grade=UNGRADED),) * episode.num_agents

    def take_faults(self) -> dict[str, int]:
        """Kind -> completions since the last call."""
        faults, self._faults = dict(self._faults), Counter()
        return faults

    def _note(self, kind: str, detail: str) -> None:
        self._faults[kind] += 1
        self.first_fault = self.first_fault or detail[:500]
