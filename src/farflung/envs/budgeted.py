"""Any environment of one turn with thinking budgets: `budgeted:dataset` asks what `dataset` asks, and for a length.

    budget.targets    "512,1024,2048"     a small fixed set, or "64..256" = all of these, "64..256/8" = every eighth
    budget.told       " Think for {target} tokens before giving a response."      (INTELLECT-2, arXiv 2505.07291)
    budget.where      user = after the prompt, start = before it, system = in the system message (`envs.budget_prompt`)
    budget.after      what ends thinking; the member grades what follows the last one; empty = it grades all
    budget.filler     one character that demonstrations think with (arXiv 2404.15758), for a warm start
    budget.honours    share of demonstrations that keep to the target; the others are of a random length in its range

Every other argument is the member's. Targets count tokens of the whole completion with its end. Here they are only
told: what keeping to them is worth is the trainer's to say (`trainer.shaping.length`), and which of them a machine gets
is the pool's (`pool.capability_classes`).
"""

import re
from collections.abc import Callable, Mapping

from msgspec.structs import replace
from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Environment, Grade, Split, graders_of, is_reproducible, level_of, strata_of
from farflung.envs.budget_prompt import TARGET, TOLD, BudgetPrompt, Where
from farflung.envs.episode import Episodic
from farflung.envs.problems import uniform
from farflung.errors import UserError
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

PREFIX = "budgeted:"
OWN = "budget."
MAX_TARGETS = 4096
MAX_TARGET = 1 << 24

_RANGE = re.compile(r"([0-9]{1,8})\.\.([0-9]{1,8})(?:/([0-9]{1,8}))?", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,8}", re.ASCII)

Load = Callable[[str, int, Mapping[str, EnvArg]], Environment]
"""Name, seed and arguments -> environment."""


class BudgetConfig(Config):
    targets: str
    """`64,128,256`, or `64..256` for every number between, or `64..256/8` for every eighth."""
    told: str = Field(TOLD, min_length=1, max_length=1000)
    """How the prompt tells it; `{target}` stands for the number."""
    where: Where = "user"
    """After the last user message, before the first, or in the system message."""
    after: str = Field("", max_length=64)
    """What ends thinking."""
    filler: str = Field("", max_length=1)
    """What demonstrations think with; empty = they do not."""
    honours: float = Field(0.5, ge=0, le=1)
    """Share of demonstrations of the length asked for."""


class Budgeted:
    """Implements `Environment`; strata, graders and levels are the member's."""

    def __init__(self, member: str, seed: int, args: Mapping[str, EnvArg], load: Load) -> None:
        """
        Args:
            member: name of the environment that is asked.

        Raises:
            UserError: arguments that will not do, or a member that has budgets of its own or several turns.
        """
        self.name = PREFIX + member
        own = {key.removeprefix(OWN): value for key, value in args.items() if key.startswith(OWN)}
        self.budget = parse_arguments(BudgetConfig, f"{self.name}, under {OWN}", own)
        self._prompt = BudgetPrompt(told=self.budget.told, where=self.budget.where)
        if self.budget.filler and not self.budget.after:
            raise UserError(f"{OWN}filler of environment {self.name} needs {OWN}after: what ends thinking, such as |")
        self.target_lengths = _targets(self.name, self.budget.targets)
        self.member = load(member, seed, {key: value for key, value in args.items() if not key.startswith(OWN)})
        if isinstance(self.member, Episodic):
            raise UserError(f"{member} has episodes of several turns: {PREFIX}... is for environments of one turn")
        if self.member.target_lengths:
            raise UserError(f"{member} has thinking budgets of its own: use it as it is, or switch them off")
        self.config = getattr(self.member, "config", None)
        self.num_tasks = self.member.num_tasks
        self.num_heldout_tasks = self.member.num_heldout_tasks
        self.strata = strata_of(self.member)
        self.graders = graders_of(self.member)
        self.is_reproducible = is_reproducible(self.member)

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        if target_length and target_length not in self.target_lengths:
            raise ValueError(f"target length {target_length} of a task of {self.name}: it must be 0 or one it offers")
        task = self.member.task(split, index)
        messages = self._prompt.tell(task.messages, target_length) if target_length else task.messages
        return replace(task, env=self.name, messages=messages, target_length=target_length)

    def grade(self, task: Task, completion: str) -> Grade:
        return self.member.grade(self._as_member_made(task), self._answer(completion))

    def demonstration(self, task: Task, draw: int) -> str | None:
        answer = self.member.demonstration(self._as_member_made(task), draw)
        if answer is None:
            return None
        return f"{self.budget.filler * self._num_fillers(task, answer, draw)}{self.budget.after}{answer}"

    def level(self, task: Task) -> str:
        return level_of(self.member, self._as_member_made(task))

    def alphabet(self) -> str | None:
        spelled = self.member.alphabet()
        if spelled is None:
            return None
        told = self.budget.told.replace(TARGET, "".join(map(str, self.target_lengths)))
        return "".join(sorted(set(spelled + told + self.budget.after + self.budget.filler)))

    def _as_member_made(self, task: Task) -> Task:
        """Without the budget, which `task.target_length` says."""
        target = task.target_length
        messages = self._prompt.take_away(task.messages, target) if target else task.messages
        return replace(task, env=self.member.name, messages=messages, target_length=0)

    def _answer(self, completion: str) -> str:
        """Nothing where thinking has no end: an answer that is not marked as one is none."""
        if not self.budget.after:
            return completion
        _, end, answer = completion.rpartition(self.budget.after)
        return answer if end else ""

    def _num_fillers(self, task: Task, answer: str, draw: int) -> int:
        if not self.budget.filler or not task.target_length:
            return 0
        key = (task.task_id, task.target_length, draw)
        length = task.target_length
        if uniform(10**9, "farflung/budgeted-honours/1", *key) >= self.budget.honours * 10**9:
            least, most = self.target_lengths[0], self.target_lengths[-1]
            length = least + uniform(most - least + 1, "farflung/budgeted-length/1", *key)
        num_others = len(self.budget.after) + len(answer) + 1  # the end of the sequence is a token, too
        return max(0, length - num_others)


def _targets(name: str, text: str) -> tuple[int, ...]:
    """Rising."""
    entries = [part for part in re.split(r"[\s,]+", text) if part]
    between = _RANGE.fullmatch(text.strip())
    if between is not None:
        first, last, every = int(between[1]), int(between[2]), int(between[3] or 1)
        numbers = list(range(first, last + 1, every))[: MAX_TARGETS + 1] if every else []
    else:
        numbers = sorted({int(entry) for entry in entries}) if all(map(_NUMBER.fullmatch, entries)) else []
    if not numbers or len(numbers) > MAX_TARGETS or numbers[0] < 1 or numbers[-1] > MAX_TARGET:
        raise UserError(
            f"{OWN}targets of environment {name} is {text!r}: write numbers of tokens, such as 512,1024,2048, or a "
            f"range such as 64..256 or 64..256/8; at most {MAX_TARGETS} of them, each from 1 to {MAX_TARGET}"
        )
    return tuple(numbers)
