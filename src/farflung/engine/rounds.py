"""Episodes through an engine, in rounds: everybody whose turn it is draws in one `generate` call.

A row goes on with the draws of its own (group, sample) at the position that its completion has reached, so what is
drawn does not depend on how many episodes there are or how they are batched. Each round runs the whole of its prompts
through the model again. This module does not know where episodes come from or what they are worth.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from farflung.engine.base import Completion, Engine, GroupRequest, SamplingParams, StateSink
from farflung.envs.playing import Episode, Pending


@dataclass(kw_only=True, eq=False, slots=True)
class Seat:
    """An episode with its place in the draws, and what was drawn in it."""

    group: int
    number: int
    """Of the episode in its group: its rollouts are the samples from `number * num_agents` on."""
    episode: Episode
    drawn: list[Completion] = field(default_factory=list)
    """One per turn."""

    def sample_of(self, agent: int) -> int:
        return self.number * self.episode.num_agents + agent

    def drawn_by(self, agent: int) -> list[Completion]:
        """One per turn of an agent."""
        return [made for made, turn in zip(self.drawn, self.episode.turns, strict=True) if turn.agent == agent]

    def logprobs(self, agent: int) -> NDArray[np.float32]:
        """[T] of an agent's completion: 0.0 at what was not drawn."""
        view = self.episode.views[agent]
        logprobs_T = np.zeros(len(view.completion_tokens), dtype=np.float32)
        for (start, end), made in zip(view.spans, self.drawn_by(agent), strict=True):
            logprobs_T[start:end] = made.logprobs
        return logprobs_T


def play(
    engine: Engine,
    seats: Sequence[Seat],
    params: SamplingParams,
    draw_seed: bytes,
    *,
    sink: StateSink | None = None,
) -> None:
    """Play every episode to its end.

    Raises:
        Cancelled: the engine was told to stop.
        ValueError: as `Engine.generate`.
    """
    while waiting := [seat for seat in seats if seat.episode.pending is not None]:
        by_sample = {(seat.group, seat.sample_of(_pending(seat).agent)): seat for seat in waiting}
        for made in engine.generate(_requests(waiting), params, draw_seed, sink=sink):
            seat = by_sample[made.group, made.sample]
            seat.drawn.append(made)
            seat.episode.take(made.tokens.tolist())


def _requests(waiting: Sequence[Seat]) -> list[GroupRequest]:
    """One per row; episodes of a group that begin with the same prompt share one."""
    runs = list[list[Seat]]()
    for seat in sorted(waiting, key=lambda seat: (seat.group, _pending(seat).agent, seat.number)):
        if runs and _goes_on(runs[-1], seat):
            runs[-1].append(seat)
        else:
            runs.append([seat])
    return [_request(run) for run in runs]


def _goes_on(run: Sequence[Seat], seat: Seat) -> bool:
    last = run[-1]
    one, other = _pending(last), _pending(seat)
    is_next = (last.group, last.number + 1, one.agent) == (seat.group, seat.number, other.agent)
    is_start = one.first_position == other.first_position == 0
    return is_next and is_start and np.array_equal(one.tokens, other.tokens)


def _request(run: Sequence[Seat]) -> GroupRequest:
    pending = _pending(run[0])
    return GroupRequest(
        group=run[0].group,
        prompt_tokens=pending.tokens,
        num_samples=len(run),
        first_sample=run[0].sample_of(pending.agent),
        sample_stride=run[0].episode.num_agents,
        first_position=pending.first_position,
        max_tokens=pending.max_tokens,
    )


def _pending(seat: Seat) -> Pending:
    assert seat.episode.pending is not None
    return seat.episode.pending
