"""Accuracy of a policy on tasks that it is never trained on.

One rollout per held-out task, or one of each agent of an episode, drawn with a fixed seed, so that two policies are
compared on the same tasks and noise. Does not know versions, files or who asks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from farflung.engine.base import Completion, Engine, GroupRequest, SamplingParams
from farflung.envs.base import Environment, Grade, strata_of
from farflung.envs.episode import Episodic
from farflung.evaluation.episodes import Played, play_tasks
from farflung.model.tokenizer import Tokenizer
from farflung.wire.task import Message, Task

DRAW_SEED = b"farflung/heldout/1".ljust(32, b"\0")
"""Seed of the draws; changing it changes every recorded accuracy a little."""


class ChatTokenizer(Protocol):
    """What an evaluation needs of a tokenizer."""

    def encode(self, text: str) -> list[int]: ...

    def encode_chat(self, messages: Sequence[Message]) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluatedRollout:
    """One held-out task with what the policy made of it."""

    task: Task
    completion: str
    num_tokens: int
    grade: Grade


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Means over graded tasks."""

    accuracy: float
    mean_reward: float
    mean_length_tokens: float
    num_tasks: int
    num_ungraded: int
    rollouts: tuple[EvaluatedRollout, ...]
    accuracies: Mapping[str, float] = field(default_factory=dict)
    """Of each member of a mixture, by its name; empty for an environment without members."""

    @property
    def lowest_accuracy(self) -> float:
        """Of the weakest member; where there are none, the accuracy."""
        return min(self.accuracies.values(), default=self.accuracy)


def heldout_tasks(environment: Environment, num_tasks: int) -> list[Task]:
    """The first held-out tasks, thinking budgets in turn; fewer when the split is smaller."""
    targets = environment.target_lengths or (0,)
    count = min(num_tasks, environment.num_heldout_tasks)
    return [environment.task("heldout", index, targets[index % len(targets)]) for index in range(count)]


def evaluate(
    engine: Engine, environment: Environment, tokenizer: ChatTokenizer, params: SamplingParams, *, num_tasks: int
) -> Evaluation:
    """Sample and grade held-out tasks with the engine's loaded policy."""
    tasks = heldout_tasks(environment, num_tasks)
    if isinstance(environment, Episodic):
        assert isinstance(tokenizer, Tokenizer), "episodes need a whole tokenizer"
        played = play_tasks(engine, environment, tokenizer, dict(enumerate(tasks)), params, DRAW_SEED, num_samples=1)
        return _evaluation(environment, len(tasks), [_of_agent(each) for each in played])
    requests = [
        GroupRequest(
            group=index, prompt_tokens=np.array(tokenizer.encode_chat(task.messages), dtype=np.int32), num_samples=1
        )
        for index, task in enumerate(tasks)
    ]
    completions = engine.generate(requests, params, DRAW_SEED)
    rollouts = [
        _graded(environment, tokenizer, task, completion) for task, completion in zip(tasks, completions, strict=True)
    ]
    return _evaluation(environment, len(tasks), rollouts)


def _evaluation(environment: Environment, num_tasks: int, rollouts: Sequence[EvaluatedRollout]) -> Evaluation:
    graded = [rollout for rollout in rollouts if rollout.grade.reward is not None]
    return Evaluation(
        accuracy=_mean([_accuracy(rollout.grade) for rollout in graded]),
        mean_reward=_mean([rollout.grade.reward or 0.0 for rollout in graded]),
        mean_length_tokens=_mean([float(rollout.num_tokens) for rollout in rollouts]),
        num_tasks=num_tasks,
        num_ungraded=len(rollouts) - len(graded),
        rollouts=tuple(rollouts),
        accuracies=_of_members(graded, [stratum.name for stratum in strata_of(environment)]),
    )


def _of_members(graded: Sequence[EvaluatedRollout], names: Sequence[str]) -> dict[str, float]:
    """By the names that task ids begin with; a member without a grade is left out."""
    values: dict[str, list[float]] = {name: [] for name in names}
    for rollout in graded:
        name = rollout.task.task_id.partition("/")[0]
        if name in values:
            values[name].append(_accuracy(rollout.grade))
    return {name: _mean(mine) for name, mine in values.items() if mine}


def _graded(environment: Environment, tokenizer: ChatTokenizer, task: Task, completion: Completion) -> EvaluatedRollout:
    text = tokenizer.decode(completion.tokens.tolist())
    return EvaluatedRollout(
        task=task, completion=text, num_tokens=len(completion.tokens), grade=environment.grade(task, text)
    )


def _of_agent(played: Played) -> EvaluatedRollout:
    return EvaluatedRollout(task=played.task, completion=played.text, num_tokens=played.num_tokens, grade=played.grade)


def _accuracy(grade: Grade) -> float:
    if grade.correct is not None:
        return grade.correct
    return 1.0 if grade.reward is not None and grade.reward >= 1.0 else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
