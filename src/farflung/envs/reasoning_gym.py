r"""Any data set of reasoning-gym as an environment: `reasoning-gym:chain_sum`.

**Splits.** A question belongs to the held-out split if a hash of its text says so (one in four), else to training; the
seed plays no part, so no question is in both splits, not even of runs with different seeds. Task i of a split is the
first of candidates (i, attempt 0), (i, attempt 1), ... that belongs to it and has a reference answer; candidate streams
have seeds of their own per split and attempt. Within a split a question may come twice if the data set has few.

**Prompt.** The question, then how to mark the answer: `<answer>x</answer>`, `\boxed{x}`, or nothing but the answer.

**Characters.** With `characters = "ascii"` a candidate with any other character than printable ASCII and newline is
passed over, so that a character model made here can spell every task; by default the vocabulary is open.

**Grade.** The answer is taken from the text after the thinking part and scored by the data set's own scorer; `correct`
is a score of 1. The reward is `correct`, or with `partial` the score itself: many scorers pay a little for any text and
a share for a right answer hidden in a longer one. No answer, or one longer than `MAX_ANSWER_CHARS`, is 0. If the scorer
raises, the reference is scored as a control: if that still counts as right, the scorer is sound and the answer cannot
be read, which is 0; if not, the scorer is broken here and the grade is None. So nobody can make a bad answer
"ungradable".

This module does not know chat templates. Scorers that are unsafe with foreign text are refused (`reasoning_gym_sets`).
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.problems import uniform
from farflung.envs.reasoning_gym_sets import check_dataset, open_dataset
from farflung.envs.tasks import check_index, single_turn
from farflung.errors import OurFault, UserError
from farflung.rewards.extract import after_thinking, boxed, tagged
from farflung.wire.pool import EnvArg
from farflung.wire.task import Task

PREFIX = "reasoning-gym:"

HELDOUT_SHARE = 4
"""One question in so many is held out. Changing it moves questions between the splits."""
MAX_ATTEMPTS = 256
"""Candidates for one task. With a quarter of the questions eligible all fail once in 10**32."""
MAX_ANSWER_CHARS = 8192
"""Longest answer that a scorer gets to see; the longest reference of any data set has about 4,100."""
NUM_CACHED_ENTRIES = 1024
"""Entries kept, so that a group's completions do not generate their puzzle again."""
NUM_OPEN_STREAMS = 32

INSTRUCTIONS = {
    "tags": "Write the final answer, and nothing else, between <answer> and </answer>.",
    "boxed": r"Write the final answer, and nothing else, as \boxed{answer}.",
    "plain": "Reply with the final answer and nothing else.",
}

ASCII = "\n" + "".join(map(chr, range(ord(" "), ord("~") + 1)))
"""What questions, instructions and references are made of with `characters = "ascii"`."""

_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, AssertionError)
"""What a scorer raises on text that it cannot read. Anything else (memory, files, imports) is our own trouble."""


class ReasoningGymConfig(Config):
    """The adapter's own arguments; all others go to the data set."""

    num_tasks: int = Field(10_000, ge=1, le=10**6)
    """Size of the training split."""
    num_heldout_tasks: int = Field(256, ge=1, le=10**5)
    answer_format: Literal["tags", "boxed", "plain"] = "tags"
    """How the completion marks its answer; the prompt says so."""
    partial: bool = False
    """Reward the data set's own score instead of 0 or 1."""
    characters: Literal["any", "ascii"] = "any"
    """"ascii" leaves out tasks with other characters, so that a tiny character model can spell the rest."""


class ReasoningGym:
    """One data set with its scorer."""

    def __init__(self, dataset: str, seed: int, args: Mapping[str, EnvArg]) -> None:
        self.name = PREFIX + dataset
        own = {key: value for key, value in args.items() if key in ReasoningGymConfig.model_fields}
        self.config = parse_arguments(ReasoningGymConfig, self.name, own)
        self.num_tasks = self.config.num_tasks
        self.num_heldout_tasks = self.config.num_heldout_tasks
        self.target_lengths: tuple[int, ...] = ()
        self._dataset = dataset
        self._seed = seed
        self._dataset_args = {key: value for key, value in args.items() if key not in own}
        self._stream: Callable[[Split, int], Any] = lru_cache(NUM_OPEN_STREAMS)(self._open_stream)
        self._entry: Callable[[Split, int], dict[str, Any]] = lru_cache(NUM_CACHED_ENTRIES)(self._find_entry)
        check_dataset(dataset, self._dataset_args, frozenset(ReasoningGymConfig.model_fields))
        self._check_both_splits_exist()

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        entry = self._entry(split, index)
        return single_turn(
            env=self.name,
            split=split,
            index=index,
            prompt=f"{entry['question']}\n\n{INSTRUCTIONS[self.config.answer_format]}",
            answer=_reference(entry) or "",
            target_length=target_length,
        )

    def grade(self, task: Task, completion: str) -> Grade:
        answer = self._extract(completion)
        if answer is None or len(answer) > MAX_ANSWER_CHARS:
            return Grade(reward=0.0, correct=0.0, components={"score": 0.0})
        score = self._score(task, answer)
        if score is None:
            return Grade(reward=None)
        correct = float(score >= 1)
        return Grade(reward=score if self.config.partial else correct, correct=correct, components={"score": score})

    def demonstration(self, task: Task, draw: int) -> str | None:  # noqa: ARG002 - there is one reference
        """The marked reference; None for data sets that check an answer without having one."""
        if not task.answer:
            return None
        match self.config.answer_format:
            case "tags":
                return f"<answer>{task.answer}</answer>"
            case "boxed":
                return rf"\boxed{{{task.answer}}}"
            case "plain":
                return task.answer

    def level(self, task: Task) -> str:
        """The data set's own figures of difficulty that it tells of a single puzzle: "num_digits 2, num_terms 3"."""
        metadata = self._entry_of(task)["metadata"]
        difficulty = metadata.get("difficulty")
        if not isinstance(difficulty, Mapping):
            return "" if difficulty is None else f"difficulty {difficulty}"
        figures = {name: metadata.get(name) for name in sorted(difficulty)}
        return ", ".join(f"{name} {value}" for name, value in figures.items() if isinstance(value, int | str))

    def alphabet(self) -> str | None:
        return ASCII if self.config.characters == "ascii" else None

    def _extract(self, completion: str) -> str | None:
        spoken = after_thinking(completion)
        if spoken is None:
            return None
        match self.config.answer_format:
            case "tags":
                return tagged(spoken)
            case "boxed":
                return boxed(spoken)
            case "plain":
                return spoken.strip() or None

    def _score(self, task: Task, answer: str) -> float | None:
        entry = self._entry_of(task)
        scorer = self._stream("train", 0)
        try:
            return _bounded(scorer.score_answer(answer, entry))
        except _UNREADABLE:
            return 0.0 if _scores_its_reference(scorer, entry) else None
        except Exception:  # noqa: BLE001 - the boundary to foreign code: the trouble is ours, not the answer's
            return None

    def _entry_of(self, task: Task) -> dict[str, Any]:
        split, _, index = task.task_id.partition("/")
        return self._entry("train" if split == "train" else "heldout", int(index))

    def _find_entry(self, split: Split, index: int) -> dict[str, Any]:
        check_index(split, index, self.num_tasks if split == "train" else self.num_heldout_tasks)
        for attempt in range(MAX_ATTEMPTS):
            entry: dict[str, Any] = self._stream(split, attempt)[index]
            if split_of(entry["question"]) == split and self._can_be_asked(entry):
                return entry
        raise OurFault(f"{self.name}: none of {MAX_ATTEMPTS} candidates for task {index} belongs to the {split} split")

    def _can_be_asked(self, entry: Mapping[str, Any]) -> bool:
        reference = _reference(entry)
        if reference == "":
            return False
        return self.config.characters == "any" or set(entry["question"] + (reference or "")) <= set(ASCII)

    def _open_stream(self, split: Split, attempt: int) -> Any:
        """A data set whose element i is candidate (i, attempt)."""
        seed = uniform(2**31, "farflung/reasoning-gym-stream/1", self._dataset, self._seed, split, attempt)
        size = self.num_tasks if split == "train" else self.num_heldout_tasks
        return open_dataset(self._dataset, seed, size, self._dataset_args)

    def _check_both_splits_exist(self) -> None:
        splits: tuple[Split, ...] = ("train", "heldout")
        try:
            for split in splits:
                self._entry(split, 0)
        except OurFault as error:
            raise UserError(f"{error}: it has too few questions with these arguments; ask for harder ones") from error


def split_of(question: str) -> Split:
    """Which split a question belongs to, by its text alone."""
    return "heldout" if uniform(HELDOUT_SHARE, "farflung/reasoning-gym-split/1", question) == 0 else "train"


def _reference(entry: Mapping[str, Any]) -> str | None:
    """The reference answer, stripped; None where the data set has none, "" where it is blank."""
    answer = entry["answer"]
    return None if answer is None else str(answer).strip()


def _scores_its_reference(scorer: Any, entry: Mapping[str, Any]) -> bool:
    """Whether the scorer is sound on this entry; taken on trust where there is no reference to try."""
    reference = _reference(entry)
    if reference is None:
        return True
    try:
        return _bounded(scorer.score_answer(reference, entry)) >= 1
    except Exception:  # noqa: BLE001 - same boundary: a scorer that raises on its own reference is not sound
        return False


def _bounded(score: Any) -> float:
    """A score as a float in [0, 1]; some scorers sum up to 1.0000000000000002."""
    value = float(score)
    if math.isnan(value):
        raise ValueError("the score is not a number")
    return min(max(value, 0.0), 1.0)
