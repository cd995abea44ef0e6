"""An episode in the making, token by token: the same for whoever samples it and for whoever replays what was claimed.

    pending       whose turn it is: all ids so far, where the draws begin, how many there may be
    take(ids)     the turn is said; then the next one is pending, or nothing: the episode is over

    completion of an agent  =  turn as drawn | what the template puts between, with what it was told | turn | ... | turn

An episode is over when the environment asks nobody or `max_turns` turns are taken; also (`Ending`) when what the next
agent is to be told and one more token do not fit, when the chat template would show earlier turns otherwise than they
were said, since ids only grow, and when the environment fails. Nothing but the ids drawn goes in, so an episode is a
function of them. This module does not know engines, seeds or files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from farflung.envs.episode import AgentTurn, Ask, EpisodeGrade, Episodic
from farflung.envs.hearsay import plain
from farflung.model.conversation import Conversation
from farflung.model.tokenizer import Tokenizer
from farflung.wire.pool import PoolSpec
from farflung.wire.task import Task
from farflung.wire.verdict import RewardResult

REWARD_TOLERANCE = 1e-6
"""By how much rewards of turns may differ from the episode's, which is of order 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeLimits:
    """What a pool or an evaluation allows, beside the environment's own limits."""

    max_prompt_tokens: int
    """Of each agent's first prompt."""
    max_completion_tokens: int
    """Of all that follows it, turns and what lies between."""
    eos_token_ids: frozenset[int]

    @classmethod
    def of_pool(cls, pool: PoolSpec, eos_token_ids: Sequence[int]) -> Self:
        return cls(
            max_prompt_tokens=pool.max_prompt_tokens,
            max_completion_tokens=pool.max_completion_tokens,
            eos_token_ids=frozenset(eos_token_ids),
        )


class Ending(StrEnum):
    """Why an episode is over."""

    DONE = "done"
    """The environment asked nobody."""
    TURNS = "turns"
    """`max_turns` turns were taken."""
    NO_ROOM = "no_room"
    REWRITTEN = "rewritten"
    """The chat template cannot go on without changing what was said."""
    LONG_PROMPT = "long_prompt"
    """An agent's first prompt is longer than allowed: it has no rollout."""
    FAULT = "fault"
    """The environment or the template failed, see `Episode.fault`."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Pending:
    """A turn that somebody has to draw."""

    agent: int
    tokens: NDArray[np.int32]
    """Prompt and completion so far, what the agent was just told included."""
    first_position: int
    """Of the first token drawn, in the agent's completion."""
    max_tokens: int


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class View:
    """One agent's view of the episode: the rollout that it is."""

    prompt_tokens: NDArray[np.int32]
    completion_tokens: NDArray[np.int32]
    spans: tuple[tuple[int, int], ...]
    """[start, end) of its turns in the completion; the last one ends it."""


class EpisodeFault(Exception):
    """The environment did not keep to its interface."""


class _Seat:
    """What one agent has heard and said."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.num_prompt = len(conversation.ids)
        self.row = conversation.ids
        """Ids up to the end of its last turn."""
        self.spans: list[tuple[int, int]] = []

    @property
    def num_completion(self) -> int:
        return len(self.conversation.ids) - self.num_prompt

    def view(self) -> View:
        ids = np.array(self.row, dtype=np.int32)
        prompt, completion = ids[: self.num_prompt], ids[self.num_prompt :]
        return View(prompt_tokens=prompt, completion_tokens=completion, spans=tuple(self.spans))


class Episode:
    """One attempt at a task. Never raises for what the environment does, except in `grades`."""

    def __init__(self, tokenizer: Tokenizer, environment: Episodic, task: Task, limits: EpisodeLimits) -> None:
        self._tokenizer, self._environment, self._task, self._limits = tokenizer, environment, task, limits
        self._seats: dict[int, _Seat] = {}
        self._grades: tuple[EpisodeGrade, ...] | None = None
        self.turns: list[AgentTurn] = []
        self.ending: Ending | None = None
        """None while a turn is pending."""
        self.fault = ""
        """What failed, in words."""
        self.fault_kind = ""
        """Name of the exception."""
        self.pending = self._next()

    @property
    def num_agents(self) -> int:
        return self._environment.num_agents

    @property
    def task(self) -> Task:
        return self._task

    @property
    def unplayable(self) -> str:
        """Why some agent has no rollout, in words; empty when each has one. Asked when nothing is pending."""
        if all(agent in self._seats and self._seats[agent].spans for agent in range(self.num_agents)):
            return ""
        return self.fault or f"it ended ({self.ending}) after {len(self.turns)} turns, before every agent had one"

    def ends_in_eos(self, agent: int) -> bool:
        """Whether the last token of an agent's row is an end-of-sequence id."""
        return self._seats[agent].row[-1] in self._limits.eos_token_ids

    @property
    def views(self) -> tuple[View, ...]:
        """[agents] of an episode that is over, and not `unplayable`."""
        return tuple(self._seats[agent].view() for agent in range(self.num_agents))

    def take(self, tokens: Sequence[int]) -> None:
        """The pending turn, as drawn: up to its end-of-sequence id, or as many as there may be."""
        pending = self.pending
        assert pending is not None, "the episode is over"
        assert 0 < len(tokens) <= pending.max_tokens, f"{len(tokens)} tokens, at most {pending.max_tokens} allowed"
        seat = self._seats[pending.agent]
        text = seat.conversation.answer(tokens)
        seat.spans.append((pending.first_position, seat.num_completion))
        seat.row = seat.conversation.ids
        is_cut = tokens[-1] not in self._limits.eos_token_ids
        self.turns.append(AgentTurn(agent=pending.agent, text=text, is_cut=is_cut))
        self.pending = self._next()

    def grades(self, max_abs_reward: float) -> tuple[EpisodeGrade, ...]:
        """[agents] What the environment gives, asked once.

        Raises:
            EpisodeFault: it failed in play, or what it gives are no grades of these turns.
            Exception: whatever the environment raises.
        """
        if self._grades is None:
            if self.fault:
                raise EpisodeFault(self.fault)
            grades = tuple(self._environment.grade_episode(self._task, tuple(self.turns)))
            if problem := self._wrong_grades(grades, max_abs_reward):
                raise EpisodeFault(problem)
            self._grades = grades
        return self._grades

    def _next(self) -> Pending | None:
        """Ask the environment; sets `ending` where there is no next turn."""
        if len(self.turns) >= self._environment.max_turns:
            self.ending = Ending.TURNS
            return None
        try:
            ask = self._environment.next_ask(self._task, tuple(self.turns))
            if ask is None:
                self.ending = Ending.DONE
                return None
            self._check(ask)
            seat = self._told(ask)
        except Exception as error:  # noqa: BLE001 - the boundary to the environment, which is other people's code
            self.fault, self.fault_kind = f"{type(error).__name__}: {error}"[:500], type(error).__name__
            self.ending = Ending.FAULT
            return None
        return None if seat is None else self._pending(ask.agent, seat)

    def _check(self, ask: Ask) -> None:
        """Every agent is asked in turn first, so that each has a rollout."""
        expected = len(self.turns)
        if expected < self.num_agents and ask.agent != expected:
            raise EpisodeFault(f"turn {expected} is asked of agent {ask.agent}: the first asks go to agents 0, 1, ...")
        if not 0 <= ask.agent < self.num_agents:
            raise EpisodeFault(f"agent {ask.agent} is asked: there are {self.num_agents}")
        if ask.agent in self._seats and not {message.role for message in ask.messages} <= {"user", "tool"}:
            raise EpisodeFault("an observation has a role other than user and tool")

    def _told(self, ask: Ask) -> _Seat | None:
        """The agent with the new messages heard; None where that ends the episode."""
        seat = self._seats.get(ask.agent)
        messages = [plain(message, self._tokenizer) for message in ask.messages] if self.turns else ask.messages
        if seat is None:
            seat = _Seat(Conversation(self._tokenizer, messages))
            if seat.num_prompt > self._limits.max_prompt_tokens:
                self.fault = (
                    f"agent {ask.agent} has a prompt of {seat.num_prompt} tokens, pool.max_prompt_tokens is "
                    f"{self._limits.max_prompt_tokens}"
                )
                self.ending = Ending.LONG_PROMPT
                return None
            self._seats[ask.agent] = seat
            return seat
        seat.conversation.say(messages)
        if seat.conversation.num_forks:
            self.ending = Ending.REWRITTEN
            return None
        return seat

    def _pending(self, agent: int, seat: _Seat) -> Pending | None:
        room = self._limits.max_completion_tokens - seat.num_completion
        if room < 1:
            self.ending = Ending.NO_ROOM
            return None
        return Pending(
            agent=agent,
            tokens=np.array(seat.conversation.ids, dtype=np.int32),
            first_position=seat.num_completion,
            max_tokens=min(room, self._environment.max_turn_tokens or room),
        )

    def _wrong_grades(self, grades: Sequence[EpisodeGrade], max_abs_reward: float) -> str:
        if len(grades) != self.num_agents:
            return f"{len(grades)} grades of {self.num_agents} agents"
        for agent, each in enumerate(grades):
            if problem := each.grade.out_of_range(max_abs_reward) or self._wrong_turns(agent, each, max_abs_reward):
                return f"agent {agent}: {problem}"
        return ""

    def _wrong_turns(self, agent: int, graded: EpisodeGrade, max_abs_reward: float) -> str:
        rewards, total = graded.turn_rewards, graded.grade.reward
        if rewards is None or total is None:
            return ""
        num_turns = len(self._seats[agent].spans)
        if len(rewards) != num_turns or not all(abs(reward) <= max_abs_reward for reward in rewards):
            return f"rewards of turns {rewards}: one of at most {max_abs_reward:g} for each of {num_turns} turns"
        if abs(sum(rewards) - total) > REWARD_TOLERANCE * max(1.0, abs(total)):
            return f"rewards of turns sum to {sum(rewards)}, the episode's is {total}"
        return ""


def episode_result(group: int, sample: int, spans: tuple[tuple[int, int], ...], graded: EpisodeGrade) -> RewardResult:
    """What is told of a rollout's worth: its grade, and which parts of it are the model's."""
    grade = graded.grade
    return RewardResult(
        group=group,
        sample=sample,
        reward=grade.reward,
        correct=grade.correct,
        components=dict(grade.components),
        spans=spans,
        turn_rewards=() if grade.reward is None else graded.turn_rewards or (),
    )
