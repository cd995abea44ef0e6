"""Tasks whose reference may be wrong: no sample is right, and most samples give one and the same answer.

A model that cannot solve a task errs in many ways; one that agrees with itself against the reference is worth a look.
This module does not know which of the two is right.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from farflung.evaluation.records import SampleRow
from farflung.rewards.extract import final_answer, tagged
from farflung.rewards.verifiers.spoken import spoken_text

MIN_SAMPLES = 4
"""Agreement of fewer says little."""
MIN_SHARE = 0.6
"""Of a task's samples that give the answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspect:
    """One task for a person to look at."""

    task_id: str
    answer: str
    """What the samples say instead."""
    num_samples: int
    num_agreeing: int


def suspects(rows: Iterable[SampleRow]) -> list[Suspect]:
    """The most agreement first; samples without a marked answer agree with nothing."""
    tasks: dict[str, list[SampleRow]] = {}
    for row in rows:
        tasks.setdefault(row.task_id, []).append(row)
    found = [suspect for task_id, samples in tasks.items() if (suspect := _suspect(task_id, samples)) is not None]
    return sorted(found, key=lambda suspect: (-suspect.num_agreeing / suspect.num_samples, suspect.task_id))


def _suspect(task_id: str, samples: list[SampleRow]) -> Suspect | None:
    if len(samples) < MIN_SAMPLES or any(sample.correct != 0.0 for sample in samples):
        return None
    answers = Counter(answer for sample in samples if (answer := _answer(sample.completion)))
    if not answers:
        return None
    ((answer, count),) = answers.most_common(1)
    if count < MIN_SHARE * len(samples):
        return None
    return Suspect(task_id=task_id, answer=answer, num_samples=len(samples), num_agreeing=count)


def _answer(completion: str) -> str:
    """In one spelling: case and blanks do not count."""
    marked = tagged(spoken_text(completion)) or final_answer(completion) or ""
    return "".join(marked.split()).casefold()
