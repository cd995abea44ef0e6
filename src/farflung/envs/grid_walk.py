"""Grid walk: the prompt `s.#./..#./..../.#.g>` is a map; the answer is a way from s to g in moves u, d, l, r: `ddrrdr`.

A step onto a wall (#) or off the map ends the walk there. Where no way leads to g the answer is `x`.

    reward = shortest / moves for a way that arrives, 1 for `x` where there is no way, else 0

`correct` is 1 for a shortest way. Problem number n encodes (start, goal, walls) of a square map, all different.
"""

from collections import deque
from collections.abc import Mapping
from math import comb

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.problems import ProblemSet
from farflung.envs.tasks import single_turn
from farflung.rewards.extract import after_thinking
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

START, GOAL, WALL, FREE, NO_WAY = "s", "g", "#", ".", "x"
MOVES = {"u": (-1, 0), "d": (1, 0), "l": (0, -1), "r": (0, 1)}
MAX_MOVES = 64
Place = tuple[int, int]


class GridWalkConfig(Config):
    size: int = Field(4, ge=2, le=6)
    """Rows and columns."""
    num_walls: int = Field(3, ge=0, le=6)
    """Of the other places."""


class GridWalk:
    name = "grid-walk"

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:
        self.config = parse_arguments(GridWalkConfig, self.name, args)
        num_places = self.config.size**2
        num_walls = min(self.config.num_walls, num_places - 2)
        self._num_wall_sets = comb(num_places - 2, num_walls)
        self._num_walls = num_walls
        self._problems = ProblemSet(self.name, seed, num_places * (num_places - 1) * self._num_wall_sets)
        self.num_tasks = self._problems.num_tasks
        self.num_heldout_tasks = self._problems.num_heldout_tasks
        self.target_lengths: tuple[int, ...] = ()

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        grid = self._map(self._problems.number(split, index))
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=f"{'/'.join(grid)}>",
            answer=shortest_way(grid),
            target_length=target_length,
            offered=self.target_lengths,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        text, best = (after_thinking(completion) or "").strip(), task.answer
        if best == NO_WAY or text == NO_WAY:
            correct = float(text == best)
            return Grade(reward=correct, correct=correct, components={"arrives": 0.0})
        arrives = reaches(_grid(task), text)
        reward = len(best) / len(text) if arrives else 0.0
        return Grade(reward=reward, correct=float(reward == 1.0), components={"arrives": float(arrives)})

    def demonstration(self, task: Task, draw: int) -> str:  # noqa: ARG002 - the first of the shortest ways
        return task.answer

    def level(self, task: Task) -> str:
        return "no way" if task.answer == NO_WAY else f"{len(task.answer)} moves"

    def alphabet(self) -> str:
        return "".join(MOVES) + START + GOAL + WALL + FREE + NO_WAY + "/>"

    def _map(self, number: int) -> list[str]:
        size = self.config.size
        rest, wall_set = divmod(number, self._num_wall_sets)
        start, goal = divmod(rest, size * size - 1)
        goal += goal >= start
        others = [place for place in range(size * size) if place not in (start, goal)]
        walls = {others[place] for place in _combination(len(others), self._num_walls, wall_set)}
        signs = {start: START, goal: GOAL, **dict.fromkeys(walls, WALL)}
        cells = "".join(signs.get(place, FREE) for place in range(size * size))
        return [cells[row * size : (row + 1) * size] for row in range(size)]


def _grid(task: Task) -> list[str]:
    return task.messages[0].content.rstrip(">").split("/")


def _place_of(grid: list[str], sign: str) -> Place:
    return next((row, line.index(sign)) for row, line in enumerate(grid) if sign in line)


def _step(grid: list[str], place: Place, move: str) -> Place | None:
    row, column = place[0] + MOVES[move][0], place[1] + MOVES[move][1]
    inside = 0 <= row < len(grid) and 0 <= column < len(grid[0])
    return (row, column) if inside and grid[row][column] != WALL else None


def reaches(grid: list[str], moves: str) -> bool:
    """Whether the walk ends on the goal without a wrong step."""
    place: Place | None = _place_of(grid, START)
    if not moves or len(moves) > MAX_MOVES or not set(moves) <= MOVES.keys():
        return False
    for move in moves:
        place = None if place is None else _step(grid, place, move)
    return place == _place_of(grid, GOAL)


def shortest_way(grid: list[str]) -> str:
    """The first of the shortest, in the order u, d, l, r at each step; `x` if there is none."""
    goal, start = _place_of(grid, GOAL), _place_of(grid, START)
    seen, queue = {start}, deque([(start, "")])
    while queue:
        place, way = queue.popleft()
        if place == goal:
            return way
        for move in MOVES:
            after = _step(grid, place, move)
            if after is not None and after not in seen:
                seen.add(after)
                queue.append((after, way + move))
    return NO_WAY


def _combination(num_items: int, size: int, rank: int) -> tuple[int, ...]:
    """The combination at `rank` in lexicographic order."""
    chosen: list[int] = []
    item = 0
    while len(chosen) < size:
        with_it = comb(num_items - item - 1, size - len(chosen) - 1)
        if rank < with_it:
            chosen.append(item)
        else:
            rank -= with_it
        item += 1
    return tuple(chosen)
