"""The interface of an environment: which tasks there are, and what a completion is worth.

An environment does not know models, leases or files. Everything about it is a function of its arguments, so that
worker and validator build the same task from the same index.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from farflung.wire.pool import EnvArg, GraderSpec, Stratum
from farflung.wire.task import Task

Split = Literal["train", "heldout"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Grade:
    """What a completion earned. `reward is None` = cannot be graded, which is neither right nor wrong."""

    reward: float | None
    """Total that the advantage is computed from."""
    correct: float | None = None
    """1.0 if the task itself was solved, without shaping; what accuracy and the signal filter look at."""
    components: Mapping[str, float] = field(default_factory=dict)

    def out_of_range(self, max_abs_reward: float) -> str:
        """What is no number, or larger than a pool allows, in words; empty when all is well."""
        for name, value in {"reward": self.reward, "correct": self.correct, **self.components}.items():
            if value is not None and not abs(value) <= max_abs_reward:
                return f"{name} is {value}, pool.max_abs_reward is {max_abs_reward:g}"
        return ""


class Environment(Protocol):
    """Tasks by index and their grading; both deterministic."""

    name: str
    num_tasks: int
    """Size of the training split."""
    num_heldout_tasks: int
    target_lengths: tuple[int, ...]
    """Thinking budgets that a lease may ask for; empty = none."""

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        """The task at `index`; the splits never share a prompt.

        Raises:
            IndexError: index outside the split.
            ValueError: a target length that is neither 0 nor in `target_lengths`.
        """
        ...

    def grade(self, task: Task, completion: str) -> Grade:
        """Grade decoded completion text (special tokens removed). Never raises on any text."""
        ...

    def demonstration(self, task: Task, draw: int) -> str | None:
        """A worked completion for supervised warm start, varied by `draw`; None if the environment has none."""
        ...

    def alphabet(self) -> str | None:
        """Characters that prompts and completions use, for a character tokenizer; None = open vocabulary."""
        ...


@runtime_checkable
class Stratified(Protocol):
    """An environment whose training tasks fall into parts: by origin, or by difficulty. Optional."""

    strata: tuple[Stratum, ...]
    """Parts; task `index` is where `slots.strata.interleaving_of(strata)` says."""


def strata_of(environment: Environment) -> tuple[Stratum, ...]:
    """Its parts; empty for an environment that knows of none."""
    return environment.strata if isinstance(environment, Stratified) else ()


@runtime_checkable
class Graded(Protocol):
    """An environment whose verdicts come from named graders. Optional."""

    graders: tuple[GraderSpec, ...]
    """All that may be asked for a verdict, of which each is known by name and version (`envs.graders.registry`)."""


def graders_of(environment: Environment) -> tuple[GraderSpec, ...]:
    """Its named graders; empty for one that grades by its own code."""
    return environment.graders if isinstance(environment, Graded) else ()


@runtime_checkable
class DeclaresRepeats(Protocol):
    """An environment that says whether it answers the same on every machine and every time. Optional."""

    is_reproducible: bool
    """False: its observations or grades may differ from one replay to the next."""


def is_reproducible(environment: Environment) -> bool:
    """True unless it says otherwise."""
    return environment.is_reproducible if isinstance(environment, DeclaresRepeats) else True


@runtime_checkable
class Levelled(Protocol):
    """An environment that knows how hard each of its tasks is. Optional."""

    def level(self, task: Task) -> str:
        """Name of the task's difficulty, such as "3 steps"; "" if it is not known."""
        ...


def level_of(environment: Environment, task: Task) -> str:
    """Where a task belongs in a table by difficulty: its level, else the part of the environment that it is from."""
    level = environment.level(task) if isinstance(environment, Levelled) else ""
    parts = {stratum.name for stratum in strata_of(environment)}
    part = task.task_id.partition("/")[0]
    return level or (part if part in parts else "")


class EnvironmentFactory(Protocol):
    def __call__(self, seed: int, args: Mapping[str, EnvArg]) -> Environment:
        """Raises `UserError` naming the argument, the rule and the fix."""
        ...
