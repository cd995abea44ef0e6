"""Take-away: two players take 1 to k counters from a pile in turn, and who takes the last one wins.

    3/17:      to the first player: up to 3 of 17 counters; it says how many, such as `1`
    3/16:      to the second player: a prompt of its own
    13:        what is left when a player's turn comes again

One model plays both sides (`opponent` "self": two agents, each with its own rollout and reward). Against a scripted
opponent it plays first, from every start that right play wins, `NUM_REPEATS` times each: a fixed test set that nothing
is trained on. What is no legal move takes one counter and costs `illegal_cost`
times its share of the moves. The winner has a reward of 1, the loser of 0. Whoever leaves a multiple of k + 1 wins with
right play (Bouton 1901), so the component `best` says how well a player plays whoever won: its share of winning moves
among the positions that had one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.episode import AgentTurn, Ask, EpisodeEnvironment, EpisodeGrade
from farflung.envs.problems import ProblemSet, uniform
from farflung.envs.tasks import check_index, single_turn
from farflung.wire.pool import EnvArg
from farflung.wire.task import Message, Task

NUM_REPEATS = 16
"""Games from each start of the test set, so that its accuracy has a standard error of about 3 points."""


class TakeAwayConfig(Config):
    max_pile: int = Field(21, ge=4, le=99)
    """Largest pile that a game begins with."""
    max_take: int = Field(3, ge=2, le=9)
    """Most counters of one move that a game may allow; each game allows 2 to this many."""
    opponent: Literal["self", "random", "perfect"] = "self"
    """Who sits on the other side: the same model, or a script."""
    illegal_cost: float = Field(0.5, ge=0, le=10)
    """Reward lost by a player whose moves are all illegal."""

    @model_validator(mode="after")
    def _pile_outlasts_a_move(self) -> "TakeAwayConfig":
        if self.max_pile <= self.max_take:
            raise ValueError(f"max_pile is {self.max_pile}: it must be above max_take, which is {self.max_take}")
        return self


@dataclass(kw_only=True, slots=True)
class Player:
    """Counts of one side."""

    num_moves: int = 0
    num_illegal: int = 0
    num_winnable: int = 0
    """Positions in which some move wins with right play."""
    num_best: int = 0
    """Of these, those in which such a move was made."""


@dataclass(kw_only=True, slots=True)
class Game:
    """A position with what led to it."""

    pile: int
    most: int
    to_move: int = 0
    players: tuple[Player, Player]

    @property
    def winner(self) -> int | None:
        return None if self.pile else 1 - self.to_move

    def move(self, text: str) -> None:
        """What the player to move says."""
        player, legal = self.players[self.to_move], min(self.most, self.pile)
        is_legal = len(text) == 1 and text in "123456789"[:legal]
        taken = int(text) if is_legal else 1
        best = self.pile % (self.most + 1)
        player.num_moves += 1
        player.num_illegal += not is_legal
        player.num_winnable += best > 0
        player.num_best += is_legal and taken == best
        self.pile -= taken
        self.to_move = 1 - self.to_move


class TakeAway(EpisodeEnvironment):
    """Self-play by construction."""

    name = "take-away"
    max_turn_tokens = 3
    """A digit and an end, with room for a mistake."""

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:
        self.config = parse_arguments(TakeAwayConfig, self.name, args)
        self.num_agents = 2 if self.config.opponent == "self" else 1
        self.max_turns = self.config.max_pile
        self._num_piles = self.config.max_pile - self.config.max_take
        num_starts = (self.config.max_take - 1) * self._num_piles
        self._problems = ProblemSet(self.name, seed, num_starts)
        starts = [self._start(number) for number in range(num_starts)]
        self._winnable = [(most, pile) for most, pile in starts if pile % (most + 1)]
        is_test = self.num_agents == 1
        self.num_tasks = 0 if is_test else self._problems.num_tasks
        self.num_heldout_tasks = len(self._winnable) * NUM_REPEATS if is_test else self._problems.num_heldout_tasks

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        check_index(split, index, self.num_tasks if split == "train" else self.num_heldout_tasks)
        if self.num_agents == 1:
            most, pile = self._winnable[index % len(self._winnable)]
        else:
            most, pile = self._start(self._problems.number(split, index))
        prompt = f"{most}/{pile}:"
        return single_turn(
            env=self.name, split=split, index=index, prompt=prompt, answer=prompt, target_length=target_length
        )

    def next_ask(self, task: Task, turns: Sequence[AgentTurn]) -> Ask | None:
        game = self._game(task, turns)
        if game.winner is not None:
            return None
        agent = game.to_move if self.num_agents == 2 else 0
        is_first = len(turns) < self.num_agents
        text = f"{game.most}/{game.pile}:" if is_first else f"{game.pile}:"
        return Ask(agent=agent, messages=(Message(role="user", content=text),))

    def grade_episode(self, task: Task, turns: Sequence[AgentTurn]) -> tuple[EpisodeGrade, ...]:
        game = self._game(task, turns)
        return tuple(
            self._grade(game.players[agent], is_winner=game.winner == agent) for agent in range(self.num_agents)
        )

    def demonstrate_turn(self, task: Task, turns: Sequence[AgentTurn], draw: int) -> str:
        """Any legal move: what wins is for the game to teach."""
        game = self._game(task, turns)
        legal = min(game.most, game.pile)
        return str(1 + uniform(legal, "farflung/take-away-shown/1", task.task_id, draw, len(turns)))

    def alphabet(self) -> str:
        return "0123456789/:"

    def _start(self, number: int) -> tuple[int, int]:
        """Most counters of a move, and the pile."""
        most, pile = divmod(number, self._num_piles)
        return most + 2, pile + self.config.max_take + 1

    def _game(self, task: Task, turns: Sequence[AgentTurn]) -> Game:
        """After these turns, and the answers of a scripted opponent."""
        most, _, pile = task.answer.rstrip(":").partition("/")
        game = Game(pile=int(pile), most=int(most), players=(Player(), Player()))
        for number, turn in enumerate(turns):
            game.move(turn.text)
            if self.num_agents == 1 and game.winner is None:
                game.move(self._scripted(game, task, number))
        return game

    def _scripted(self, game: Game, task: Task, number: int) -> str:
        best = game.pile % (game.most + 1)
        if self.config.opponent == "perfect" and best:
            return str(best)
        legal = min(game.most, game.pile)
        return str(1 + uniform(legal, "farflung/take-away-opponent/1", task.task_id, number, game.pile))

    def _grade(self, player: Player, *, is_winner: bool) -> EpisodeGrade:
        illegal = player.num_illegal / max(1, player.num_moves)
        best = {"best": player.num_best / player.num_winnable} if player.num_winnable else {}
        return EpisodeGrade(
            grade=Grade(
                reward=is_winner - self.config.illegal_cost * illegal,
                correct=float(is_winner),
                components={"won": float(is_winner), "illegal": illegal, **best},
            )
        )
