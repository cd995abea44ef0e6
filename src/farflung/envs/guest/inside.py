"""The child's side: imports one environment, then answers questions until the channel closes.

    python -c "...; from farflung.envs.guest.inside import main; main()" CHANNEL_FD

Whatever the environment raises becomes an answer; it shares this process, so nothing here guards against it. The walls
are outside.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from farflung.envs.arguments import arguments_of
from farflung.envs.base import Environment, Split, graders_of, is_reproducible, level_of, strata_of
from farflung.envs.episode import AgentTurn, DemonstratesTurns, Episodic
from farflung.envs.guest.protocol import MAX_ERROR_CHARS, MAX_MESSAGE_BYTES, Answer, Description, ErrorKind, Question
from farflung.errors import UserError
from farflung.sandbox.code.inside.frames import frame, read_frame, write_all
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task


def main() -> None:
    """Serve one host."""
    channel = int(sys.argv[1])
    sys.argv = [""]
    host = Host()
    while True:
        try:
            data = read_frame(channel, MAX_MESSAGE_BYTES)
        except EOFError:
            return
        write_all(channel, frame(msgspec.json.encode(host.answer(msgspec.json.decode(data, type=Question)))))


class Host:
    """Holds the environment once it is loaded."""

    def __init__(self) -> None:
        self._environment: Environment | None = None
        self._methods: Mapping[str, Callable[..., Any]] = {
            "load": self._load,
            "task": self._task,
            "grade": lambda task, completion: self._loaded().grade(_task(task), completion),
            "demonstration": lambda task, draw: self._loaded().demonstration(_task(task), draw),
            "level": lambda task: level_of(self._loaded(), _task(task)),
            "next_ask": lambda task, turns: self._episodic().next_ask(_task(task), _turns(turns)),
            "grade_episode": lambda task, turns: self._episodic().grade_episode(_task(task), _turns(turns)),
            "demonstrate_turn": self._demonstrate_turn,
        }

    def answer(self, question: Question) -> Answer:
        """Never raises on anything that the environment does and survives."""
        try:
            value = self._methods[question.method](*question.args)
            return Answer(id=question.id, value=msgspec.Raw(msgspec.json.encode(value)))
        except BaseException as error:  # noqa: BLE001 - other people's code; also SystemExit and KeyboardInterrupt
            kind = _kind(error)
            text = f"{type(error).__name__}: {error}" if kind == "other" else str(error)
            return Answer(id=question.id, kind=kind, error=text[:MAX_ERROR_CHARS])

    def _load(self, reference: str, seed: int, args: dict[str, EnvArg]) -> Description:
        module, _, name = reference.partition(":")
        environment: Environment = getattr(importlib.import_module(module), name)(seed, args)
        self._environment = environment
        episodic = environment if isinstance(environment, Episodic) else None
        return Description(
            name=environment.name,
            num_tasks=environment.num_tasks,
            num_heldout_tasks=environment.num_heldout_tasks,
            target_lengths=tuple(environment.target_lengths),
            alphabet=environment.alphabet(),
            strata=strata_of(environment),
            graders=graders_of(environment),
            is_reproducible=is_reproducible(environment),
            arguments=arguments_of(environment),
            num_agents=episodic.num_agents if episodic else 0,
            max_turns=episodic.max_turns if episodic else 0,
            max_turn_tokens=episodic.max_turn_tokens if episodic else 0,
        )

    def _task(self, split: Split, index: int, target_length: int) -> Task:
        return self._loaded().task(split, index, target_length)

    def _demonstrate_turn(self, task: Any, turns: Any, draw: int) -> str | None:
        environment = self._episodic()
        if not isinstance(environment, DemonstratesTurns):
            return None
        return environment.demonstrate_turn(_task(task), _turns(turns), draw)

    def _loaded(self) -> Environment:
        if self._environment is None:
            raise RuntimeError("nothing is loaded")
        return self._environment

    def _episodic(self) -> Episodic:
        environment = self._loaded()
        if not isinstance(environment, Episodic):
            raise RuntimeError("the environment has one turn")
        return environment


def _kind(error: BaseException) -> ErrorKind:
    """Those that the interface of environments knows; a `UserError` is a `ValueError`, so it comes first."""
    if isinstance(error, UserError):
        return "UserError"
    if isinstance(error, IndexError):
        return "IndexError"
    return "ValueError" if isinstance(error, ValueError) else "other"


def _task(value: Any) -> Task:
    return msgspec.convert(value, Task)


def _turns(value: Any) -> tuple[AgentTurn, ...]:
    return msgspec.convert(value, tuple[AgentTurn, ...])
