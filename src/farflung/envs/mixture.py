"""Several environments in one pool, each with a fixed share of the tasks.

    members = "easy=sort-digits, hard=sort-digits, mod-sum"      names, or labels for them where one comes twice
    easy.num_digits = 3                                          an argument of that member
    easy.weight = 2                                              its share is 2 / (2 + 1 + 1); 1 if not said

Training task `index` is the member's task that `slots.strata.interleaving_of` says, so any first n tasks have each
member's share of n to within one task, and the slots of a pool have it too. Held-out tasks are interleaved in the same
way, for as long as every member has some. A task of a member that does not offer the thinking budget asked for has one
of its own, in turn, or none. What a task is and what a completion is worth is the member's to say.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from farflung.envs.base import Environment, Grade, Split, graders_of, is_reproducible
from farflung.envs.episode import Episodic
from farflung.envs.tasks import check_index
from farflung.errors import UserError
from farflung.slots.strata import interleaving_of, turns_by
from farflung.wire.pool import MAX_STRATA, MAX_TOTAL_WEIGHT, EnvArg, Stratum
from farflung.wire.task import Task

MEMBERS, WEIGHT = "members", "weight"
Load = Callable[[str, int, Mapping[str, EnvArg]], Environment]
"""Name, seed and arguments -> environment."""

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One of the environments under its label."""

    label: str
    environment: Environment
    weight: int


class Mixture:
    """Tasks of several environments; implements `Environment` and `Stratified`."""

    name = "mixture"

    def __init__(self, seed: int, args: Mapping[str, EnvArg], load: Load) -> None:
        """Raises `UserError` for members or arguments that will not do."""
        self.members = _members(seed, args, load)
        self.strata = tuple(
            Stratum(name=member.label, num_tasks=member.environment.num_tasks, weight=member.weight)
            for member in self.members
        )
        self._by_label = {member.label: member for member in self.members}
        self._turns = turns_by([member.weight for member in self.members])
        self.num_tasks = sum(stratum.num_tasks for stratum in self.strata)
        self.num_heldout_tasks = min(
            self._turns.position_of(number, member.environment.num_heldout_tasks)
            for number, member in enumerate(self.members)
        )
        used = {spec.to_bytes(): spec for member in self.members for spec in graders_of(member.environment)}
        self.graders = tuple(used.values())
        offered = {target for member in self.members for target in member.environment.target_lengths}
        self.target_lengths = tuple(sorted(offered))
        self.is_reproducible = all(is_reproducible(member.environment) for member in self.members)

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        if target_length and target_length not in self.target_lengths:
            raise ValueError(
                f"target length {target_length} of a task of {self.name}: it must be 0 or one of {self.target_lengths}"
            )
        check_index(split, index, self.num_tasks if split == "train" else self.num_heldout_tasks)
        number, inner = interleaving_of(self.strata).locate(index) if split == "train" else self._turns.at(index)
        member = self.members[number]
        task = member.environment.task(split, inner, self._budget(member.environment, target_length))
        return replace(task, env=self.name, task_id=f"{member.label}/{task.task_id}")

    def grade(self, task: Task, completion: str) -> Grade:
        environment, inner = self._inner(task)
        return environment.grade(inner, completion)

    def demonstration(self, task: Task, draw: int) -> str | None:
        environment, inner = self._inner(task)
        return environment.demonstration(inner, draw)

    def alphabet(self) -> str | None:
        alphabets = [member.environment.alphabet() for member in self.members]
        spelled = [alphabet for alphabet in alphabets if alphabet is not None]
        return "".join(sorted(set("".join(spelled)))) if len(spelled) == len(alphabets) else None

    def _inner(self, task: Task) -> tuple[Environment, Task]:
        """The member that a task is of, and the task as the member made it."""
        label, _, task_id = task.task_id.partition("/")
        environment = self._by_label[label].environment
        return environment, replace(task, env=environment.name, task_id=task_id)

    def _budget(self, environment: Environment, target_length: int) -> int:
        offered = environment.target_lengths
        if not target_length or not offered or target_length in offered:
            return target_length if offered else 0
        return offered[self.target_lengths.index(target_length) % len(offered)]


def _members(seed: int, args: Mapping[str, EnvArg], load: Load) -> tuple[Member, ...]:
    names = member_names(args.get(MEMBERS))
    arguments: dict[str, dict[str, EnvArg]] = {label: {} for label in names}
    for key, value in args.items():
        label, dot, name = key.rpartition(".")
        if key != MEMBERS and (not dot or label not in names):
            raise UserError(
                f"argument {key} of environment {Mixture.name}: write MEMBER.ARGUMENT, where the members are "
                f"{', '.join(names)}"
            )
        if key != MEMBERS:
            arguments[label][name] = value
    weights = {label: _weight(label, own.pop(WEIGHT, 1)) for label, own in arguments.items()}
    if sum(weights.values()) > MAX_TOTAL_WEIGHT:
        raise UserError(f"the weights of environment {Mixture.name} sum to {sum(weights.values())}: at most 10000")
    members = tuple(
        Member(label=label, environment=load(name, seed, arguments[label]), weight=weights[label])
        for label, name in names.items()
    )
    for member in members:
        if isinstance(member.environment, Episodic):
            raise UserError(
                f"member {member.label} of environment {Mixture.name} has episodes of several turns: a mixture is of "
                "environments of one turn; train on it alone"
            )
    return members


def member_names(members: EnvArg | None) -> dict[str, str]:
    """Label -> name of an environment. Raises `UserError` for what is no list of members."""
    entries = [part for part in re.split(r"[\s,]+", members) if part] if isinstance(members, str) else []
    example = 'for example members = "sort-digits, mod-sum"'
    if not 1 <= len(entries) <= MAX_STRATA:
        raise UserError(f"environment {Mixture.name} has {len(entries)} members: from 1 to {MAX_STRATA}, {example}")
    names: dict[str, str] = {}
    for entry in entries:
        label, equals, name = entry.partition("=")
        name = name if equals else label
        if not _LABEL.fullmatch(label) or not name or label in names:
            raise UserError(
                f"member {entry!r} of environment {Mixture.name}: write NAME, or LABEL=NAME with a label of letters, "
                f"digits, -, _ and : that no other member has, {example}"
            )
        if name == Mixture.name:
            raise UserError(f"environment {Mixture.name} cannot be a member of itself: list its members instead")
        names[label] = name
    return names


def _weight(label: str, weight: EnvArg) -> int:
    if isinstance(weight, bool) or not isinstance(weight, int) or weight < 1:
        raise UserError(
            f"weight of member {label} of environment {Mixture.name} is {weight!r}: a whole number from 1, for example "
            "2 for twice the tasks of a member with 1"
        )
    return weight
