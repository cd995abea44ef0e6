"""Guess the letter: one of `c-r` is sought, and each wrong guess is told whether the letter comes later or earlier.

    c-r?     the prompt; the model says a letter, such as `j`
    + or -   later or earlier than that; `!` = that was no letter of the range

A letter out of the range, or anything else, is a lost guess. Turns have rewards of their own: the share of the question
that a guess has answered, log2(possible before / possible after) / log2(possible at first), which adds up to 1 when the
letter is found; a lost guess costs `lost_cost`. Halving what is left is best, and finds any of n letters in
ceil(log2(n + 1)) guesses. The splits share no range; in each range several letters are sought, so that no letter can be
learned by heart.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import log2
from string import ascii_lowercase

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.episode import AgentTurn, Ask, EpisodeEnvironment, EpisodeGrade
from farflung.envs.problems import ProblemSet, shuffled, uniform
from farflung.envs.tasks import check_index, single_turn
from farflung.wire.pool import EnvArg
from farflung.wire.task import Message, Task

EARLIER, LATER, LOST = "-", "+", "!"
LETTERS_PER_RANGE = 4
"""That are sought in each range; the smallest range has as many."""


class GuessLetterConfig(Config):
    num_letters: int = Field(26, ge=6, le=26)
    """The alphabet begins with `a` and has this many letters."""
    max_guesses: int = Field(4, ge=2, le=10)
    lost_cost: float = Field(0.1, ge=0, le=1)
    """Reward lost by a guess that cannot be right."""


class GuessLetter(EpisodeEnvironment):
    """One agent, several turns, a reward for each."""

    name = "guess-letter"
    max_turn_tokens = 3

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:
        self.config = parse_arguments(GuessLetterConfig, self.name, args)
        self.max_turns = self.config.max_guesses
        letters = ascii_lowercase[: self.config.num_letters]
        self._ranges = [
            letters[first : last + 1]
            for first, last in combinations(range(len(letters)), 2)
            if last - first + 1 >= LETTERS_PER_RANGE
        ]
        self._problems = ProblemSet(self.name, seed, len(self._ranges))
        self.num_tasks = self._problems.num_tasks * LETTERS_PER_RANGE
        self.num_heldout_tasks = self._problems.num_heldout_tasks * LETTERS_PER_RANGE

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        check_index(split, index, self.num_tasks if split == "train" else self.num_heldout_tasks)
        number, which = divmod(index, LETTERS_PER_RANGE)
        letters = self._ranges[self._problems.number(split, number)]
        sought = shuffled(range(len(letters)), "farflung/guess-letter-sought/1", letters)[which]
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=f"{letters[0]}-{letters[-1]}?",
            answer=letters[sought],
            target_length=target_length,
        )

    def next_ask(self, task: Task, turns: Sequence[AgentTurn]) -> Ask | None:
        if not turns:
            return Ask(agent=0, messages=task.messages)
        if turns[-1].text == task.answer:
            return None
        return Ask(agent=0, messages=(Message(role="user", content=self._answer(task, turns[-1].text)),))

    def grade_episode(self, task: Task, turns: Sequence[AgentTurn]) -> tuple[EpisodeGrade, ...]:
        possible = _range_of(task)
        at_first, rewards = log2(len(possible)), list[float]()
        for turn in turns:
            left = _left(possible, turn.text, task.answer)
            gained = log2(len(possible)) - log2(len(left))
            rewards.append(gained / at_first if turn.text in [*possible] else -self.config.lost_cost)
            possible = left
        is_found = any(turn.text == task.answer for turn in turns)
        lost = sum(reward < 0 for reward in rewards) / max(1, len(rewards))
        grade = Grade(
            reward=sum(rewards),
            correct=float(is_found),
            components={"found": float(is_found), "lost": lost, "guesses": float(len(turns))},
        )
        return (EpisodeGrade(grade=grade, turn_rewards=tuple(rewards)),)

    def demonstrate_turn(self, task: Task, turns: Sequence[AgentTurn], draw: int) -> str:
        """Any letter of the range: what the answers are good for is to be found out."""
        letters = _range_of(task)
        return letters[uniform(len(letters), "farflung/guess-letter-shown/1", task.task_id, draw, len(turns))]

    def alphabet(self) -> str:
        return ascii_lowercase[: self.config.num_letters] + EARLIER + LATER + LOST + "?"

    def _answer(self, task: Task, guess: str) -> str:
        if guess not in [*_range_of(task)]:
            return LOST
        return LATER if task.answer > guess else EARLIER


def _range_of(task: Task) -> str:
    first, last = task.messages[0].content[0], task.messages[0].content[2]
    return ascii_lowercase[ascii_lowercase.index(first) : ascii_lowercase.index(last) + 1]


def _left(possible: str, guess: str, answer: str) -> str:
    """What the answer to a guess leaves possible."""
    if guess not in [*possible]:
        return possible
    if guess == answer:
        return answer
    before, _, after = possible.partition(guess)
    return after if answer > guess else before
