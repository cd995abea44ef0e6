"""What the validator finds out by itself: the slot's tasks and prompts, and the worth of every completion.

It gathers evidence and hands it to `validation.judge`, which decides. A completion whose grading fails has no reward,
and the failure is counted by kind in the verdict's `measured`, under `grading_fault/<kind>`. Episodes of several turns
are played again with the claimed tokens (`validator.episodes`). Runs in the judging process (`validator.child`); does
not know the network.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import numpy as np
from msgspec.structs import replace

from farflung.envs.base import Environment
from farflung.envs.episode import Episodic
from farflung.envs.playing import Episode, EpisodeLimits
from farflung.envs.registry import load_for_grading
from farflung.errors import OurFault
from farflung.model.any_config import read_config
from farflung.model.description import CONFIG_FILE
from farflung.model.tokenizer import TOKENIZER_FILES, Tokenizer
from farflung.model.vocabulary import end_of_sequence, never_drawn
from farflung.validation.case import JudgeRules, SlotEvidence
from farflung.validation.judge import Examine, judge, not_accepted
from farflung.validator.episodes import Episodes
from farflung.validator.progress import BUILDING_TASKS, FINISHING, READING
from farflung.wire.lease import Lease
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout import Rollout
from farflung.wire.submission import Assignment
from farflung.wire.task import Task
from farflung.wire.verdict import GRADING_FAULT, Judgement, RejectReason, RewardResult

POLICY_FILES = frozenset({CONFIG_FILE, *TOKENIZER_FILES})
"""The files of a version that judging needs; the weights come with the proofs."""
NOT_REPRODUCIBLE = "NotReproducible"
"""Kind of grading fault: the same completion was worth something else the second time."""


class Judge:
    """One pool's rules, environment and tokenizer."""

    def __init__(
        self,
        rules: JudgeRules,
        environment: Environment,
        tokenizer: Tokenizer,
        validator: str,
        begin: Callable[[int], None] = lambda _step: None,
        examine: Examine | None = None,
    ) -> None:
        """
        Args:
            begin: told each step before it begins: the position of a rollout, or a step of `validator.progress`.
            examine: needed in pools with proofs.
        """
        self._rules = rules
        self._environment = environment
        self._tokenizer = tokenizer
        self._validator = validator
        self._begin = begin
        self._examine = examine
        self._limits = EpisodeLimits.of_pool(rules.pool, rules.eos_token_ids)
        self._faults: Counter[str] = Counter()
        self.first_fault = ""
        """Of the last submission: what went wrong first in grading."""

    @classmethod
    def from_policy(
        cls,
        files: Mapping[str, bytes],
        pool: PoolSpec,
        validator: str,
        begin: Callable[[int], None] = lambda _step: None,
        examine: Examine | None = None,
    ) -> Self:
        """Build from the pool and the small files of any version.

        Raises:
            OurFault: the files are not those of the pool; a validator must not judge then.
        """
        tokenizer = Tokenizer.from_files(files)
        if tokenizer.digest != pool.tokenizer_digest:
            raise OurFault(f"tokenizer {tokenizer.digest} is not the pool's {pool.tokenizer_digest}")
        config = read_config(json.loads(files[CONFIG_FILE]))
        rules = JudgeRules(
            pool=pool,
            vocab_size=config.vocab_size,
            eos_token_ids=end_of_sequence(tokenizer, config),
            reserved_token_ids=never_drawn(tokenizer, config),
        )
        return cls(rules, load_for_grading(pool.environment), tokenizer, validator, begin, examine)

    def judge(
        self,
        assignment: Assignment,
        data: bytes | None,
        current_version: int,
        now_ms: int,
        given_up: Mapping[int, str] = {},
    ) -> Judgement:
        """The verdict on one submission, with the evidence behind it.

        Args:
            given_up: positions of rollouts that are not to be graded -> what went wrong when that was tried.

        Raises:
            OurFault: the validator itself failed; `own_fault` says so.
        """
        self._faults.clear()
        self.first_fault = ""
        try:
            tasks = self._tasks(assignment.lease)
            self._begin(READING)
            episodes = self._episodes(tasks, given_up)
            judgement = judge(
                assignment.submission,
                assignment.lease,
                data,
                self._rules,
                self._evidence(tasks, episodes),
                current_version=current_version,
                validator=self._validator,
                now_ms=now_ms,
                grade=lambda rollouts: (
                    self._graded(tasks, rollouts, given_up, is_twice=assignment.audited_rollout is not None)
                    if episodes is None
                    else episodes.grade(rollouts)
                ),
                examine=self._examine,
            )
            if episodes is not None:
                self._faults += episodes.faults
                self.first_fault = episodes.first_fault
        except Exception as error:
            raise OurFault(f"judging failed: {type(error).__name__}: {error}") from error
        return self._with_faults(judgement)

    def control(self, lease: Lease) -> None:
        """Grade an empty completion of each task, which every environment can.

        Raises:
            OurFault: this one cannot.
        """
        tasks = self._tasks(lease)
        for position, task in enumerate(tasks):
            self._begin(position)
            try:
                self._grade_empty(task)
            except Exception as error:
                raise OurFault(f"grading an empty completion failed: {type(error).__name__}: {error}") from error

    def _grade_empty(self, task: Task) -> None:
        """Raises whatever the environment raises."""
        environment = self._environment
        if not isinstance(environment, Episodic):
            environment.grade(task, "")
            return
        episode = Episode(self._tokenizer, environment, task, self._limits)
        while episode.pending is not None:
            episode.take(self._rules.eos_token_ids[:1])
        episode.grades(self._rules.pool.max_abs_reward)

    def _tasks(self, lease: Lease) -> list[Task]:
        self._begin(BUILDING_TASKS)
        pairs = zip(lease.task_indices, lease.target_lengths, strict=True)
        return [self._environment.task("train", index, target) for index, target in pairs]

    def _episodes(self, tasks: Sequence[Task], given_up: Mapping[int, str]) -> Episodes | None:
        """None for an environment of one turn."""
        environment = self._environment
        if not isinstance(environment, Episodic):
            return None
        return Episodes(
            lambda task: Episode(self._tokenizer, environment, task, self._limits),
            self._rules,
            tasks,
            given_up,
            self._begin,
        )

    def _evidence(self, tasks: Sequence[Task], episodes: Episodes | None) -> SlotEvidence:
        return SlotEvidence(
            env=self._environment.name,
            task_ids=tuple(task.task_id for task in tasks),
            prompt_tokens=tuple(np.array(self._tokenizer.encode_chat(task.messages), dtype=np.int32) for task in tasks),
            target_lengths=tuple(task.target_length for task in tasks),
            read_episodes=None if episodes is None else episodes.read,
        )

    def _graded(
        self, tasks: Sequence[Task], rollouts: Sequence[Rollout], given_up: Mapping[int, str], *, is_twice: bool
    ) -> list[RewardResult]:
        """What is audited is graded twice: a grade that does not come out the same has no worth."""
        results = self._grade(tasks, rollouts, given_up)
        if not is_twice:
            return results
        faults = self._faults.copy()
        again = self._grade(tasks, rollouts, given_up)
        self._faults = faults
        for position, (first, second) in enumerate(zip(results, again, strict=True)):
            if (first.reward, first.correct) != (second.reward, second.correct):
                self._faults[NOT_REPRODUCIBLE] += 1
                results[position] = RewardResult(group=first.group, sample=first.sample, reward=None)
        return results

    def _grade(
        self, tasks: Sequence[Task], rollouts: Sequence[Rollout], given_up: Mapping[int, str]
    ) -> list[RewardResult]:
        results = []
        for position, rollout in enumerate(rollouts):
            if position in given_up:
                self._faults[given_up[position]] += 1
                results.append(RewardResult(group=rollout.group, sample=rollout.sample, reward=None))
            else:
                self._begin(position)
                results.append(self._grade_one(tasks[rollout.group], rollout))
        self._begin(FINISHING)
        return results

    def _grade_one(self, task: Task, rollout: Rollout) -> RewardResult:
        text = self._tokenizer.decode(rollout.completion_tokens.tolist())
        try:
            grade = self._environment.grade(task, text)
            if problem := grade.out_of_range(self._rules.pool.max_abs_reward):
                raise RewardOutOfRange(problem)  # counted as every other fault of the environment
            return RewardResult(
                group=rollout.group,
                sample=rollout.sample,
                reward=grade.reward,
                correct=grade.correct,
                components=dict(grade.components),
            )
        except Exception as error:  # noqa: BLE001 - the boundary to the environment, which is other people's code
            self._faults[type(error).__name__] += 1
            self.first_fault = self.first_fault or f"{type(error).__name__}: {error} (task {task.task_id})"[:500]
            return RewardResult(group=rollout.group, sample=rollout.sample, reward=None)

    def _with_faults(self, judgement: Judgement) -> Judgement:
        if not self._faults:
            return judgement
        faults = {f"{GRADING_FAULT}{kind}": float(count) for kind, count in self._faults.items()}
        verdict = judgement.verdict
        return replace(judgement, verdict=replace(verdict, measured={**verdict.measured, **faults}))


class RewardOutOfRange(Exception):
    """An environment gave a number that is not finite, or larger than the pool's rules allow."""


def own_fault(assignment: Assignment, detail: str, pool: PoolSpec, validator: str, now_ms: int) -> Judgement:
    """What to post when a submission could not be judged."""
    return not_accepted(
        assignment.submission,
        RejectReason.VALIDATOR_FAULT,
        detail,
        pool_digest=pool.digest(),
        validator=validator,
        now_ms=now_ms,
    )
