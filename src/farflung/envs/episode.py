"""Episodes of several turns and agents: who is asked next, what they have not seen yet, and what each one earned.

An episode is a function of what was said, so that a validator replays it from the tokens alone:

    next_ask(task, [])               -> Ask(agent 0, its whole prompt)
    next_ask(task, [turn 0])         -> one agent: Ask(agent 0, what is new since it spoke: a tool's result, say)
                                        a game: Ask(agent 1, its whole prompt); the first asks go to each agent in turn
    next_ask(task, [turn 0, ...])    -> None: it is over
    grade_episode(task, turns)       -> one grade per agent, with a reward per turn where turns are judged

An environment that is not `Episodic` has one agent and one turn: its prompt is `task.messages`, its grade `grade`. Each
agent of each episode is one rollout: prompt, then its own turns as drawn with what it was told in between, which is
never learned from. This module does not know tokens, models or sandboxes.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from farflung.envs.base import Environment, Grade
from farflung.wire.task import Message, Task


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentTurn:
    """What one agent said."""

    agent: int
    text: str
    """Decoded, without special tokens."""
    is_cut: bool = False
    """It reached the limit of tokens before it came to an end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """Whose turn it is."""

    agent: int
    messages: tuple[Message, ...]
    """What the agent has not seen yet: its whole prompt at first, then observations, of roles `user` and `tool`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeGrade:
    """What one agent earned."""

    grade: Grade
    """Of the whole episode."""
    turn_rewards: tuple[float, ...] | None = None
    """One per turn of this agent, which sum to `grade.reward`; None = judged by outcome alone."""


@runtime_checkable
class Episodic(Protocol):
    """An environment of several turns or agents. Optional; `task.messages` is then the prompt of agent 0."""

    num_agents: int
    max_turns: int
    """Of all agents together; an episode is over when it has so many."""
    max_turn_tokens: int
    """Of one turn; 0 = as many as the rollout may have."""

    def next_ask(self, task: Task, turns: Sequence[AgentTurn]) -> Ask | None:
        """Who speaks next and what they are told; None when the episode is over.

        Deterministic, and never raises on any text. The first `num_agents` asks go to agents 0, 1, ... in this order,
        so that every agent has a rollout.
        """
        ...

    def grade_episode(self, task: Task, turns: Sequence[AgentTurn]) -> tuple[EpisodeGrade, ...]:
        """One grade per agent, also for episodes that a limit ended. Never raises on any text."""
        ...


@runtime_checkable
class DemonstratesTurns(Protocol):
    """An `Episodic` environment that knows what may be said at each turn, for supervised warm starts. Optional."""

    def demonstrate_turn(self, task: Task, turns: Sequence[AgentTurn], draw: int) -> str | None:
        """A turn worth imitating of whom `next_ask` asks, varied by `draw`; None if there is none."""
        ...


class EpisodeEnvironment(ABC):
    """What an environment of several turns need not say itself; a convenience, not a duty."""

    num_agents = 1
    max_turn_tokens = 0
    target_lengths: tuple[int, ...] = ()

    @abstractmethod
    def grade_episode(self, task: Task, turns: Sequence[AgentTurn]) -> tuple[EpisodeGrade, ...]:
        """As `Episodic.grade_episode`."""

    def grade(self, task: Task, completion: str) -> Grade:
        """Of an episode that ended after its first turn."""
        return self.grade_episode(task, (AgentTurn(agent=0, text=completion),))[0].grade

    def demonstration(self, task: Task, draw: int) -> str | None:  # noqa: ARG002 - part of the interface
        """None: episodes are shown turn by turn (`DemonstratesTurns`)."""
        return None


class SingleTurn:
    """Any other environment as episodes of one turn. Implements `Episodic`."""

    num_agents = 1
    max_turns = 1
    max_turn_tokens = 0

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def next_ask(self, task: Task, turns: Sequence[AgentTurn]) -> Ask | None:
        return None if turns else Ask(agent=0, messages=task.messages)

    def grade_episode(self, task: Task, turns: Sequence[AgentTurn]) -> tuple[EpisodeGrade, ...]:
        return (EpisodeGrade(grade=self._environment.grade(task, turns[0].text)),)


def as_episodic(environment: Environment) -> Episodic:
    """The environment itself, or its episodes of one turn."""
    return environment if isinstance(environment, Episodic) else SingleTurn(environment)


def num_agents_of(environment: Environment) -> int:
    """Rollouts that one episode gives."""
    return environment.num_agents if isinstance(environment, Episodic) else 1
