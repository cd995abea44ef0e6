"""Which tasks are looked at, and episodes in which texts are said; one turn is an episode too."""

from collections.abc import Iterator

from farflung.envs.base import Environment, Grade, Split
from farflung.envs.episode import AgentTurn, DemonstratesTurns, Episodic, as_episodic
from farflung.wire.task import Task


def sizes(environment: Environment) -> tuple[tuple[Split, int], ...]:
    """Both splits."""
    return (("train", environment.num_tasks), ("heldout", environment.num_heldout_tasks))


def sampled(environment: Environment, most: int) -> Iterator[Task]:
    """At most so many tasks of each split, from its beginning and its end, with every target length in turn."""
    targets = (0, *environment.target_lengths)
    for split, size in sizes(environment):
        half = most // 2
        chosen = sorted({*range(min(size, most - half)), *range(max(0, size - half), size)})
        for count, index in enumerate(chosen):
            yield environment.task(split, index, targets[count % len(targets)])


def said(environment: Environment, task: Task, text: str) -> tuple[AgentTurn, ...]:
    """The episode in which everybody says `text` at every turn."""
    episodic, turns = as_episodic(environment), list[AgentTurn]()
    while len(turns) < episodic.max_turns and (ask := episodic.next_ask(task, turns)) is not None:
        turns.append(AgentTurn(agent=ask.agent, text=text))
    return tuple(turns)


def shown(environment: Environment, task: Task, draw: int) -> tuple[AgentTurn, ...] | None:
    """The episode that the environment demonstrates; None if it shows none."""
    if not isinstance(environment, Episodic):
        text = environment.demonstration(task, draw)
        return None if text is None else (AgentTurn(agent=0, text=text),)
    if not isinstance(environment, DemonstratesTurns):
        return None
    turns: list[AgentTurn] = []
    while len(turns) < environment.max_turns and (ask := environment.next_ask(task, turns)) is not None:
        text = environment.demonstrate_turn(task, turns, draw)
        if text is None:
            return None
        turns.append(AgentTurn(agent=ask.agent, text=text))
    return tuple(turns)


def grades_of(environment: Environment, task: Task, turns: tuple[AgentTurn, ...]) -> tuple[Grade, ...]:
    """One per agent."""
    return tuple(each.grade for each in as_episodic(environment).grade_episode(task, turns))
