"""Environments whose agent may call tools before it answers: what is left to say is the tools, the tasks and the grade.

ask 0      the tools as a system prompt, then the task's messages
ask k      what its calls gave, one message each
end        a turn without a call: the answer
"""

from abc import abstractmethod
from collections.abc import Sequence

from farflung.envs.base import Grade
from farflung.envs.episode import AgentTurn, Ask, EpisodeEnvironment, EpisodeGrade
from farflung.envs.tools import Toolbox
from farflung.wire.task import Message, Task


class ToolEpisodes(EpisodeEnvironment):
    """Implements the parts of `Episodic`; the rest is the subclass's (`envs.base.Environment`)."""

    max_turns = 8

    def __init__(self, toolbox: Toolbox) -> None:
        self.toolbox = toolbox
        self.is_reproducible = toolbox.is_reproducible

    @abstractmethod
    def grade_answer(self, task: Task, answer: str) -> Grade:
        """Of the last turn's text, which may still be a call where turns or tokens ran out. Never raises on any."""

    def next_ask(self, task: Task, turns: Sequence[AgentTurn]) -> Ask | None:
        """As `Episodic.next_ask`."""
        if not turns:
            told = Message(role="system", content=self.toolbox.instructions)
            return Ask(agent=0, messages=(told, *task.messages))
        answers = self.toolbox.answer(turns[-1].text)
        return Ask(agent=0, messages=answers) if answers else None

    def grade_episode(self, task: Task, turns: Sequence[AgentTurn]) -> tuple[EpisodeGrade, ...]:
        """Judged by the answer alone."""
        return (EpisodeGrade(grade=self.grade_answer(task, turns[-1].text)),)
