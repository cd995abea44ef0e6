"""An environment of the library as one of ours: `verifiers:reverse-text`.

    tasks        its rows by number, prompts as its rollout would send them (system prompt, few-shot examples, tools)
    reward       its rubric's weighted sum;  components = each reward function and metric by name
    correct      1 where the reward is at least `correct_at`
    one turn     `SingleTurnEnv` -> `VerifiersEnvironment`
    several      anything else that the library can roll out -> `VerifiersEpisodes`: each question replays the episode

A grade is None where the rubric is not done after `time_limit_s`, where the environment's own infrastructure fails, and
where the reward is no number. What a reward function raises is 0, as the library has it, since completions make them
raise; but of an environment that asks the outside world, such as a judge, it is None. Where the environment itself
cannot read what was said (`UNREADABLE`) the episode is over, and worth 0. Rewards that compare a whole
group are refused, since a completion here is graded alone. This module does not know how the library plays.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Environment, Grade, Split
from farflung.envs.episode import AgentTurn, Ask, EpisodeGrade
from farflung.envs.verifiers_adapter.calls import Caller, TookTooLong
from farflung.envs.verifiers_adapter.failures import failures_heard
from farflung.envs.verifiers_adapter.library import library, load, outside_world
from farflung.envs.verifiers_adapter.rows import rows_of
from farflung.envs.verifiers_adapter.script import Script
from farflung.errors import OurFault, UserError
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

PREFIX = "verifiers:"
NUM_CACHED_TASKS = 1024
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, AssertionError)
"""What an environment raises on a turn that it cannot read. Anything else (memory, files) is our own trouble."""


class VerifiersConfig(Config):
    """The adapter's own arguments; all others go to the environment's `load_environment`."""

    time_limit_s: float = Field(30.0, gt=0, le=3600)
    """For the environment's answer to a turn, and for all reward functions together."""
    correct_at: float = 1.0
    """Reward from which on a task counts as solved."""
    max_episode_turns: int = Field(16, ge=1, le=1000)
    """Where the environment of several turns has no limit of its own."""


class VerifiersEnvironment:
    """One turn. Implements `Environment`."""

    def __init__(self, name: str, loaded: Any, config: VerifiersConfig, seed: int) -> None:
        self.name = name
        self.config = config
        self.target_lengths: tuple[int, ...] = ()
        self.why_not_reproducible = outside_world(loaded)
        self.is_reproducible = not self.why_not_reproducible
        self._rows = rows_of(loaded)
        self.num_tasks, self.num_heldout_tasks = len(self._rows.train), len(self._rows.heldout)
        self._caller = Caller(config.time_limit_s)
        self._script = Script(loaded, self._caller, seed)
        self._infrastructure: tuple[type[Exception], ...] = (library().InfraError, library().ModelError)
        self._task: Callable[[Split, int], Task] = lru_cache(NUM_CACHED_TASKS)(self._make_task)

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        if target_length:
            raise ValueError(
                f"target length {target_length} of a task of {self.name}: it must be 0, there are no budgets"
            )
        return self._task(split, index)

    def grade(self, task: Task, completion: str) -> Grade:
        return self.grade_turns(task, (AgentTurn(agent=0, text=completion),))

    def demonstration(self, task: Task, draw: int) -> str | None:  # noqa: ARG002 - the library has no worked completions
        return None

    def alphabet(self) -> str | None:
        return None

    def grade_turns(self, task: Task, turns: Sequence[AgentTurn]) -> Grade:
        """Of all that was said. Raises what the environment raises that no text can be blamed for."""
        with failures_heard() as failures:
            try:
                output = self._script.graded(task.task_id, self._row_of(task), turns)
            except TookTooLong:
                return Grade(reward=None)
            except UNREADABLE:
                return Grade(reward=0.0, correct=0.0) if self.is_reproducible else Grade(reward=None)
        components = {name: value for name, value in _numbers(output.get("metrics")).items() if math.isfinite(value)}
        reward = output.get("reward")
        is_ours = self._is_our_trouble(output.get("error")) or (failures.sentences and not self.is_reproducible)
        if is_ours or reward is None or not math.isfinite(reward):
            return Grade(reward=None, components=components)
        return Grade(reward=float(reward), correct=float(reward >= self.config.correct_at), components=components)

    def _make_task(self, split: Split, index: int) -> Task:
        row, key = self._rows.row(split, index), f"{split}/{index}"
        try:
            messages = self._script.asked(key, row, ())
        except TookTooLong as error:
            raise OurFault(f"{self.name}: setting up task {key} is {error}") from error
        if messages is None:
            raise OurFault(f"{self.name}: task {key} is over before the model is asked")
        return Task(env=self.name, task_id=key, messages=messages, answer=_text(row.get("answer")))

    def _row_of(self, task: Task) -> dict[str, Any]:
        split, _, index = task.task_id.partition("/")
        return self._rows.row("train" if split == "train" else "heldout", int(index))

    def _is_our_trouble(self, error: Any) -> bool:
        """Whether what ended the rollout early is a fault of machines, not of what the model said."""
        kind = getattr(library(), str(error.get("error")), None) if isinstance(error, Mapping) else None
        return isinstance(kind, type) and issubclass(kind, self._infrastructure)


class VerifiersEpisodes(VerifiersEnvironment):
    """Several turns. Implements `Environment` and `Episodic`."""

    num_agents = 1
    max_turn_tokens = 0

    def __init__(self, name: str, loaded: Any, config: VerifiersConfig, seed: int) -> None:
        super().__init__(name, loaded, config, seed)
        own = getattr(loaded, "max_turns", -1)
        self.max_turns: int = own if own > 0 else config.max_episode_turns

    def next_ask(self, task: Task, turns: Sequence[AgentTurn]) -> Ask | None:
        if not turns:
            return Ask(agent=0, messages=task.messages)
        try:
            messages = self._script.asked(task.task_id, self._row_of(task), turns)
        except UNREADABLE:
            return None
        except TookTooLong as error:
            raise OurFault(f"{self.name}: the answer to turn {len(turns)} is {error}") from error
        return None if messages is None else Ask(agent=0, messages=messages)

    def grade_episode(self, task: Task, turns: Sequence[AgentTurn]) -> tuple[EpisodeGrade, ...]:
        return (EpisodeGrade(grade=self.grade_turns(task, turns)),)


def load_verifiers(name: str, seed: int, args: Mapping[str, EnvArg]) -> Environment:
    """The environment that `name`, without the prefix, means to the library.

    Raises:
        UserError: see `library.load`; or it compares whole groups.
    """
    own = {key: value for key, value in args.items() if key in VerifiersConfig.model_fields}
    config = parse_arguments(VerifiersConfig, PREFIX + name, own)
    vf = library()
    loaded = load(name, seed, {key: value for key, value in args.items() if key not in own})
    if loaded.rubric.has_group_rewards:
        raise UserError(
            f"{PREFIX}{name} has reward functions that compare a whole group: completions are graded one by one here; "
            "use a rubric of single rewards"
        )
    kind = VerifiersEnvironment if isinstance(loaded, vf.SingleTurnEnv) else VerifiersEpisodes
    return kind(PREFIX + name, loaded, config, seed)


def _numbers(metrics: Any) -> dict[str, float]:
    return {str(name): float(value) for name, value in (metrics or {}).items() if isinstance(value, int | float)}


def _text(answer: Any) -> str:
    return "" if answer is None else str(answer)
