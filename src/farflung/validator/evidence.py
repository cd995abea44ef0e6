"""What the validator finds out by itself: the slot's tasks and prompts, and the worth of every completion.

It gathers evidence and hands it to `validation.judge`, which decides. Does not know the network.
"""

import json
from collections.abc import Sequence
from typing import Self

import numpy as np

from farflung.envs.base import Environment
from farflung.envs.registry import load_environment
from farflung.errors import OurFault
from farflung.model.config import ModelConfig
from farflung.model.description import CONFIG_FILE
from farflung.model.tokenizer import TOKENIZER_FILES, Tokenizer
from farflung.model.vocabulary import end_of_sequence, never_drawn
from farflung.validation.case import JudgeRules, SlotEvidence
from farflung.validation.judge import judge, not_accepted
from farflung.wire.lease import Lease
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout import Rollout
from farflung.wire.submission import Assignment
from farflung.wire.task import Task
from farflung.wire.verdict import Judgement, RejectReason, RewardResult

POLICY_FILES = frozenset({CONFIG_FILE, *TOKENIZER_FILES})
"""The files of a version that judging needs; the weights come with the proofs."""


class Judge:
    """One pool's rules, environment and tokenizer."""

    def __init__(self, rules: JudgeRules, environment: Environment, tokenizer: Tokenizer, validator: str) -> None:
        self._rules = rules
        self._environment = environment
        self._tokenizer = tokenizer
        self._validator = validator

    @classmethod
    def from_policy(cls, files: dict[str, bytes], pool: PoolSpec, validator: str) -> Self:
        """Build from the pool and the small files of any version.

        Raises:
            OurFault: the files are not those of the pool; a validator must not judge then.
        """
        tokenizer = Tokenizer.from_files(files)
        if tokenizer.digest != pool.tokenizer_digest:
            raise OurFault(f"tokenizer {tokenizer.digest} is not the pool's {pool.tokenizer_digest}")
        config = ModelConfig.from_hf(json.loads(files[CONFIG_FILE]))
        rules = JudgeRules(
            pool=pool,
            vocab_size=config.vocab_size,
            eos_token_ids=end_of_sequence(tokenizer, config),
            reserved_token_ids=never_drawn(tokenizer, config),
        )
        spec = pool.environment
        return cls(rules, load_environment(spec.name, spec.seed, spec.args), tokenizer, validator)

    def judge(self, assignment: Assignment, data: bytes | None, current_version: int, now_ms: int) -> Judgement:
        """The verdict on one submission, with the evidence behind it.

        Raises:
            OurFault: the validator itself failed; `own_fault` says so.
        """
        try:
            tasks = self._tasks(assignment.lease)
            return judge(
                assignment.submission,
                assignment.lease,
                data,
                self._rules,
                self._evidence(tasks),
                current_version=current_version,
                validator=self._validator,
                now_ms=now_ms,
                grade=lambda rollouts: self._grade(tasks, rollouts),
            )
        except Exception as error:
            raise OurFault(f"judging failed: {type(error).__name__}: {error}") from error

    def own_fault(self, assignment: Assignment, detail: str, now_ms: int) -> Judgement:
        """What to post when `judge` raised."""
        return not_accepted(
            assignment.submission,
            RejectReason.VALIDATOR_FAULT,
            detail,
            self._rules,
            validator=self._validator,
            now_ms=now_ms,
        )

    def _tasks(self, lease: Lease) -> list[Task]:
        pairs = zip(lease.task_indices, lease.target_lengths, strict=True)
        return [self._environment.task("train", index, target) for index, target in pairs]

    def _evidence(self, tasks: Sequence[Task]) -> SlotEvidence:
        return SlotEvidence(
            env=self._environment.name,
            task_ids=tuple(task.task_id for task in tasks),
            prompt_tokens=tuple(np.array(self._tokenizer.encode_chat(task.messages), dtype=np.int32) for task in tasks),
        )

    def _grade(self, tasks: Sequence[Task], rollouts: Sequence[Rollout]) -> list[RewardResult]:
        return [self._grade_one(tasks[rollout.group], rollout) for rollout in rollouts]

    def _grade_one(self, task: Task, rollout: Rollout) -> RewardResult:
        grade = self._environment.grade(task, self._tokenizer.decode(rollout.completion_tokens.tolist()))
        return RewardResult(
            group=rollout.group,
            sample=rollout.sample,
            reward=grade.reward,
            correct=grade.correct,
            components=dict(grade.components),
        )
