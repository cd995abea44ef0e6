"""`farflung env try TARGET`: a task is shown, somebody answers, and every reward is shown by name.

Who answers is a function from what is asked to a text: the person at the keyboard, one fixed answer, or a model.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from farflung.cli.env.tables import plain, table
from farflung.cli.env.target import opened
from farflung.cli.env_args import parse_env_args
from farflung.envs.base import Environment
from farflung.envs.episode import AgentTurn, Ask, EpisodeGrade, as_episodic, num_agents_of
from farflung.errors import UserError
from farflung.wire.task import Task

Answer = Callable[[Ask], tuple[str, bool]]
"""What is said when asked, and whether a limit cut it short."""


def run_try(arguments: Namespace, settings: list[str]) -> int:
    """Play one episode. Raises as `target.opened`, and `UserError` for a task that there is not."""
    args = parse_env_args(settings, "env try")
    with (
        opened(
            arguments.target, seed=arguments.seed, args=args, entry=arguments.entry, trust=arguments.trust
        ) as target,
        _answering(arguments) as answer,
    ):
        task = _task(target.environment, arguments)
        turns = _play(target.environment, task, answer, show=not arguments.json)
        grades = as_episodic(target.environment).grade_episode(task, turns)
    if arguments.json:
        told = [{"agent": number, **_plain(each)} for number, each in enumerate(grades)]
        said = [{"agent": turn.agent, "text": turn.text} for turn in turns]
        sys.stdout.write(f"{json.dumps({'task': task.task_id, 'turns': said, 'grades': told})}\n")
        return 0
    rows = [row for number, each in enumerate(grades) for row in _rows(number, each, len(grades))]
    Console(file=sys.stdout, highlight=False).print(table(("", ""), rows))
    return 0


def _task(environment: Environment, arguments: Namespace) -> Task:
    try:
        return environment.task(arguments.split, arguments.task, arguments.target_length)
    except (IndexError, ValueError) as error:
        raise UserError(str(error)) from error


def _play(environment: Environment, task: Task, answer: Answer, *, show: bool) -> tuple[AgentTurn, ...]:
    episodic, turns = as_episodic(environment), list[AgentTurn]()
    many = num_agents_of(environment) > 1
    while len(turns) < episodic.max_turns and (ask := episodic.next_ask(task, turns)) is not None:
        if show:
            for message in ask.messages:
                who = f"{message.role} to agent {ask.agent}" if many else message.role
                sys.stdout.write(f"{who}> {plain(message.content)}\n")
            sys.stdout.flush()
        text, is_cut = answer(ask)
        turns.append(AgentTurn(agent=ask.agent, text=text, is_cut=is_cut))
    return tuple(turns)


@contextmanager
def _answering(arguments: Namespace) -> Iterator[Answer]:
    if arguments.answer is not None and arguments.model is not None:
        raise UserError("--answer and --model: one of them answers; leave the other out")
    if arguments.answer is not None:
        yield lambda _: (arguments.answer, False)
    elif arguments.model is not None:
        from farflung.cli.env.model_answers import ModelAnswers

        yield ModelAnswers(
            Path(arguments.model),
            temperature=arguments.temperature,
            max_tokens=arguments.max_tokens,
            seed=arguments.seed,
            echo=not arguments.json,
        )
    else:
        yield _typed


def _typed(ask: Ask) -> tuple[str, bool]:
    """A line of the person, or everything that is piped in."""
    if not sys.stdin.isatty():
        return sys.stdin.read() if not ask.agent else sys.stdin.readline().rstrip("\n"), False
    sys.stdout.write("you> ")
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        raise KeyboardInterrupt
    return line.rstrip("\n"), False


def _plain(each: EpisodeGrade) -> dict[str, Any]:
    grade = each.grade
    return {
        "reward": grade.reward,
        "correct": grade.correct,
        "components": dict(grade.components),
        "turn_rewards": each.turn_rewards,
    }


def _rows(number: int, each: EpisodeGrade, num_agents: int) -> Iterator[tuple[str, str]]:
    who = f"agent {number} " if num_agents > 1 else ""
    grade = each.grade
    yield f"{who}reward", _figure(grade.reward)
    yield f"{who}correct", _figure(grade.correct)
    for name, value in grade.components.items():
        yield f"  {name}", _figure(value)
    if each.turn_rewards is not None:
        yield "  by turn", ", ".join(map(_figure, each.turn_rewards))


def _figure(value: float | None) -> str:
    return "none: cannot be graded" if value is None else f"{value:g}"
