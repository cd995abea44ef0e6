"""What a pool's rules add to `farflung verify`: temperature and thresholds, and episodes of several turns, replayed."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from farflung.api.client import CoordinatorClient
from farflung.cli import ports
from farflung.cli.run_folder import RunFolder
from farflung.coordinator.journal import decode
from farflung.coordinator.pool_state import restore
from farflung.envs.base import Environment
from farflung.envs.episode import Episodic
from farflung.envs.playing import Episode, EpisodeLimits
from farflung.envs.registry import load_for_pool
from farflung.errors import UserError
from farflung.state.event_log import SqlEventLog
from farflung.validation.case import JudgeRules, Transcript
from farflung.validator.episodes import Episodes
from farflung.wire.node import Role
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout import Rollout
from farflung.wire.task import Task

if TYPE_CHECKING:
    from farflung.model.tokenizer import Tokenizer

_NUMBER_OF_TASK = re.compile(r"train/([0-9]{1,15})")


def rules_of(source: str) -> PoolSpec:
    """The rules of a pool, by the address of its coordinator or by a folder of a run.

    Raises:
        UserError: it is neither.
    """
    if ports.is_url(source):
        return asyncio.run(_asked(source))
    folder = RunFolder(root=Path(source))
    if not folder.database.exists():
        raise UserError(f"--pool is {source}: it must be the address of a coordinator, or a folder of a run with one")
    log = SqlEventLog(f"sqlite:///{folder.database}")
    try:
        state = restore(map(decode, log.replay()))
    finally:
        log.close()
    if state is None:
        raise UserError(f"{source}: nothing has happened in this run yet")
    return state.rules


async def _asked(url: str) -> PoolSpec:
    async with CoordinatorClient(url, node="verify", role=Role.COORDINATOR) as client:
        return await client.pool()


def task_indices(text: str | None) -> tuple[int, ...] | None:
    """Of `--tasks`; None without it.

    Raises:
        UserError: they are no numbers.
    """
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--tasks is {text[:80]!r}: it must be the task indices of the lease, such as 17,4") from None


def transcripts_of(
    rollouts: Sequence[Rollout], rules: JudgeRules, tokenizer: "Tokenizer", indices: Sequence[int] | None
) -> Sequence[Transcript] | None:
    """One per rollout; None where every completion is one turn.

    Args:
        indices: one task per group; None = the number in each task's name.

    Raises:
        UserError: the environment is not here, or the tasks cannot be told.
    """
    environment = load_for_pool(rules.pool.environment)
    if not isinstance(environment, Episodic):
        return None
    _check_complete(rollouts, rules.pool)
    tasks = _tasks(environment, rollouts, indices)
    limits = EpisodeLimits.of_pool(rules.pool, rules.eos_token_ids)

    def begin(task: Task) -> Episode:
        return Episode(tokenizer, environment, task, limits)

    return Episodes(begin, rules, tasks, {}, _tell_nobody).read(rollouts)


def _tell_nobody(_step: int) -> None:
    """Of the steps of a replay."""


def _check_complete(rollouts: Sequence[Rollout], pool: PoolSpec) -> None:
    size = pool.rollouts_per_group
    expected = [(index // size, index % size) for index in range(pool.rollouts_per_slot)]
    found = [(rollout.group, rollout.sample) for rollout in rollouts]
    if found != expected:
        raise UserError(
            f"the file has {len(found)} rollouts, not the {len(expected)} of a slot in order: nothing to replay"
        )


def _tasks(environment: Environment, rollouts: Sequence[Rollout], indices: Sequence[int] | None) -> list[Task]:
    """By group.

    Raises:
        UserError: there is no such task, or it is not the one that the file names.
    """
    first_of = {rollout.group: rollout for rollout in reversed(rollouts)}
    tasks = []
    for group, rollout in sorted(first_of.items()):
        index = _index(rollout) if indices is None else indices[group] if group < len(indices) else -1
        if not 0 <= index < environment.num_tasks:
            raise UserError(
                f"group {group}: which of the {environment.num_tasks} tasks of {environment.name} it is cannot be told "
                f"from {rollout.task_id[:80]!r}: give the task indices of the lease with --tasks"
            )
        task = environment.task("train", index, rollout.target_length)
        if task.task_id != rollout.task_id:
            raise UserError(
                f"group {group}: task {index} is {task.task_id!r} here, the file has {rollout.task_id[:80]!r}"
            )
        tasks.append(task)
    return tasks


def _index(rollout: Rollout) -> int:
    found = _NUMBER_OF_TASK.fullmatch(rollout.task_id)
    return -1 if found is None else int(found[1])
