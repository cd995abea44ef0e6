"""Environments from plain functions: rows of tasks, and rewards `(task, completion) -> float | None`.

    reward     = sum of weight * value over the rewards, each of which is logged under its name
    correct    = 1 where the first reward has its full value 1, whatever the others say
    None       of any reward: the task cannot be graded
    blank      a completion of nothing that is seen is 0 in every reward, without asking

Rows come from a list, from a file of JSON lines, or from a function of the row's number. The splits never share a
prompt: of a list, the prompts with the smallest hashes are held out; of a function, a share of its numbers
(`envs.problems`), so a function gives each number a prompt of its own. This module runs nothing that a model wrote.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec

from farflung.config.base import Config
from farflung.envs.base import Grade, Split
from farflung.envs.problems import ProblemSet
from farflung.envs.tasks import check_index
from farflung.errors import UserError
from farflung.wire.pool import EnvArg
from farflung.wire.task import Message, Task

Args: TypeAlias = Mapping[str, EnvArg]
"""Arguments of an environment in a pool's rules."""
Reward: TypeAlias = Callable[[Task, str], float | None]
WithBudget: TypeAlias = Callable[[tuple[Message, ...], int], tuple[Message, ...]]
"""The prompt with a thinking budget told in it."""
MAX_JSONL_BYTES = 1 << 30


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One task as its author writes it. In a file, a line such as `{"prompt": "17+25=", "answer": "42"}`."""

    prompt: str | tuple[Message, ...]
    """One user message, or all messages."""
    answer: str
    """What rewards compare with; never shown to the model."""
    demonstration: str | None = None
    """A completion worth imitating; None = the answer itself."""

    @property
    def messages(self) -> tuple[Message, ...]:
        return (Message(role="user", content=self.prompt),) if isinstance(self.prompt, str) else self.prompt


Rows: TypeAlias = Sequence[Row] | str | Path | Callable[[int], Row]


class SimpleEnvironment:
    """Implements `Environment`."""

    def __init__(
        self,
        *,
        name: str,
        tasks: Rows,
        rewards: Mapping[str, Reward | tuple[float, Reward]],
        seed: int = 0,
        num_tasks: int | None = None,
        heldout: float | Rows = 0.1,
        characters: str | None = None,
        target_lengths: Sequence[int] = (),
        with_budget: WithBudget | None = None,
        config: Config | None = None,
    ) -> None:
        """
        Args:
            name: what pools call it.
            tasks: rows, a file of JSON lines, or a function of the row's number.
            rewards: by name; a weight may stand before the function, 1 if not. The first one says what is correct.
            seed: of the order of a function's rows; rows of a list keep theirs.
            num_tasks: how many rows a function has, both splits together.
            heldout: share of the rows, or rows of their own.
            characters: all that prompts and demonstrations are spelled with, for a tokenizer of characters.
            target_lengths: thinking budgets that leases may ask for; `with_budget` then tells them.
            config: arguments as they were parsed, for those who show them.

        Raises:
            UserError: rows that cannot be read, that share prompts across splits, or are too few.
        """
        if not rewards:
            raise UserError(f"environment {name} has no rewards: give at least one function")
        if target_lengths and with_budget is None:
            raise UserError(
                f"environment {name} offers target lengths: give with_budget, which tells them in the prompt"
            )
        self.name = name
        self.config = config
        self.target_lengths = tuple(target_lengths)
        self._with_budget = with_budget
        self._rewards = {key: value if isinstance(value, tuple) else (1.0, value) for key, value in rewards.items()}
        self._judge = next(iter(self._rewards))
        self._characters = characters
        self._source = _source(name, tasks, seed, num_tasks, heldout)
        self.num_tasks = self._source.num_tasks
        self.num_heldout_tasks = self._source.num_heldout_tasks

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        check_index(split, index, self.num_tasks if split == "train" else self.num_heldout_tasks)
        if target_length and target_length not in self.target_lengths:
            raise ValueError(
                f"target length {target_length} of a task of {self.name}: it must be 0 or one of {self.target_lengths}"
            )
        row = self._source.row(split, index)
        messages = row.messages
        if target_length and self._with_budget is not None:
            messages = self._with_budget(messages, target_length)
        return Task(
            env=self.name,
            task_id=f"{split}/{index}",
            messages=messages,
            answer=row.answer,
            target_length=target_length,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        if not any(char.isprintable() and char != " " for char in completion):
            return Grade(reward=0.0, correct=0.0, components=dict.fromkeys(self._rewards, 0.0))
        values: dict[str, float] = {}
        for name, (_, reward) in self._rewards.items():
            value = reward(task, completion)
            if value is None:
                return Grade(reward=None, components=values)
            values[name] = float(value)
        total = sum(weight * values[name] for name, (weight, _) in self._rewards.items())
        return Grade(reward=total, correct=float(values[self._judge] >= 1.0), components=values)

    def demonstration(self, task: Task, draw: int) -> str | None:  # noqa: ARG002 - one per row
        split, _, index = task.task_id.partition("/")
        row = self._source.row("train" if split == "train" else "heldout", int(index))
        return row.answer if row.demonstration is None else row.demonstration

    def alphabet(self) -> str | None:
        return self._characters


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Rows of a function."""

    make: Callable[[int], Row]
    problems: ProblemSet

    @property
    def num_tasks(self) -> int:
        return self.problems.num_tasks

    @property
    def num_heldout_tasks(self) -> int:
        return self.problems.num_heldout_tasks

    def row(self, split: Split, index: int) -> Row:
        return self.make(self.problems.number(split, index))


@dataclass(frozen=True, slots=True)
class _Listed:
    """Rows that are all there."""

    train: Sequence[Row]
    heldout: Sequence[Row]

    @property
    def num_tasks(self) -> int:
        return len(self.train)

    @property
    def num_heldout_tasks(self) -> int:
        return len(self.heldout)

    def row(self, split: Split, index: int) -> Row:
        return (self.train if split == "train" else self.heldout)[index]


def _source(name: str, tasks: Rows, seed: int, num_tasks: int | None, heldout: float | Rows) -> _Numbered | _Listed:
    if callable(tasks):
        if num_tasks is None or num_tasks < 2 or not isinstance(heldout, float):
            raise UserError(
                f"tasks of environment {name} are a function: give num_tasks, at least 2, and no held-out rows"
            )
        return _Numbered(tasks, ProblemSet(name, seed, num_tasks))
    rows = _rows(name, tasks)
    if isinstance(heldout, float):
        return _parted(name, rows, heldout)
    if callable(heldout):
        raise UserError(f"held-out tasks of environment {name} are a function, and its tasks are not: give rows")
    apart = _rows(name, heldout)
    shared = {row.messages for row in rows} & {row.messages for row in apart}
    if shared:
        raise UserError(f"{len(shared)} prompts of environment {name} are in both splits: leave them out of one")
    return _Listed(rows, apart)


def _parted(name: str, rows: Sequence[Row], share: float) -> _Listed:
    """Held out: the prompts with the smallest hashes, so that a prompt that comes twice is in one split."""
    prompts = sorted({row.messages for row in rows}, key=_hash)
    if len(prompts) < 2 or not 0 < share < 1:
        raise UserError(
            f"environment {name} has {len(prompts)} different prompts and holds out {share:g} of them: at least 2, and "
            "a share between 0 and 1"
        )
    held = set(prompts[: max(1, min(len(prompts) - 1, round(share * len(prompts))))])
    return _Listed([row for row in rows if row.messages not in held], [row for row in rows if row.messages in held])


def _hash(messages: tuple[Message, ...]) -> bytes:
    return hashlib.sha256(json.dumps([[each.role, each.content] for each in messages]).encode()).digest()


def _rows(name: str, tasks: Sequence[Row] | str | Path) -> Sequence[Row]:
    if not isinstance(tasks, str | Path):
        return tasks
    path = Path(tasks)
    try:
        if path.stat().st_size > MAX_JSONL_BYTES:
            raise UserError(f"{path} of environment {name} is larger than {MAX_JSONL_BYTES} bytes: cut it")
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"tasks of environment {name}: {path} cannot be read: {error}") from error
    return [_row(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _row(path: Path, number: int, line: str) -> Row:
    try:
        return msgspec.json.decode(line, type=Row)
    except msgspec.DecodeError as error:
        raise UserError(f'{path}:{number}: {error}; a line is {{"prompt": "17+25=", "answer": "42"}}') from error
