"""Instructions: `Tell me about cats. Reply with exactly three words.`

A task is a subject, a way to ask, a form and a variant of the form. One subject in eight is held out with all its
tasks, so that what is measured are subjects never trained on.

    reward  = 0.8 * form + 0.2 * subject         form = closeness to the form asked for, in [0, 1] (`forms`)
    correct = form is 1                          subject = 1 if the reply names it, so that not any text will do

A reply that says the same words again and again (fewer than three different ones in four) has half of its form: without
that, `snow, snow, snow, snow` is what a policy learns.
A blank reply, and one longer than `MAX_REPLY_CHARS`, earns 0. What is said about the subject is not judged. Each form
has the same share of the tasks, and figures of its own. Does not know models or templates.
"""

from collections.abc import Mapping

from msgspec.structs import replace
from pydantic import Field, field_validator

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.base import Grade, Split
from farflung.envs.instructions.forms import FORMS, Form, is_varied
from farflung.envs.instructions.subjects import REQUESTS, SUBJECTS
from farflung.envs.problems import shuffled
from farflung.envs.tasks import check_index, single_turn
from farflung.rewards.extract import after_thinking
from farflung.slots.permutation import KeyedPermutation
from farflung.slots.seeds import keyed_hash
from farflung.slots.strata import interleaving_of
from farflung.wire.pool import EnvArg, Stratum
from farflung.wire.task import Task

MAX_REPLY_CHARS = 4096
HELDOUT_SHARE = 8
"""One subject in so many is held out. Changing it changes the tasks of every pool."""
FORM_WEIGHT, SUBJECT_WEIGHT = 0.8, 0.2
ASCII = "\n" + "".join(map(chr, range(ord(" "), ord("~") + 1)))
_KEY = b"farflung instructions"
"""Public: tasks are no secret."""


class InstructionsConfig(Config):
    forms: str = Field(" ".join(FORMS), description="Which forms are asked for, by name.")

    @field_validator("forms")
    @classmethod
    def _are_known(cls, forms: str) -> str:
        names = forms.replace(",", " ").split()
        unknown = [name for name in names if name not in FORMS]
        if unknown or not names or len(set(names)) < len(names):
            raise ValueError(f'forms is "{forms}": it must name some of {", ".join(FORMS)}, each once')
        return " ".join(names)


class Instructions:
    """Implements `Environment` and `Stratified`."""

    name = "instructions"
    target_lengths: tuple[int, ...] = ()

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:
        self._names = parse_arguments(InstructionsConfig, self.name, args).forms.split()
        order = shuffled(range(len(SUBJECTS)), "farflung/instructions-subjects/1", seed)
        num_heldout = len(SUBJECTS) // HELDOUT_SHARE
        self._subjects: Mapping[Split, list[int]] = {"heldout": order[:num_heldout], "train": order[num_heldout:]}
        self.strata = self._strata("train")
        self._rows = {split: interleaving_of(self._strata(split)) for split in self._subjects}
        self._orders = {
            (split, name): KeyedPermutation(
                keyed_hash(_KEY, "farflung/instructions-order/1", split, name, seed), self._size(split, name)
            )
            for split in self._subjects
            for name in self._names
        }
        self.num_tasks = sum(stratum.num_tasks for stratum in self.strata)
        self.num_heldout_tasks = sum(stratum.num_tasks for stratum in self._strata("heldout"))

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        check_index(split, index, self.num_tasks if split == "train" else self.num_heldout_tasks)
        number, inner = self._rows[split].locate(index)
        name = self._names[number]
        subject, request, variant = self._parts(split, name, inner)
        task = single_turn(
            env=self.name,
            split=split,
            index=inner,
            prompt=f"{REQUESTS[request].format(subject=SUBJECTS[subject])} {FORMS[name].instruction(variant)}",
            answer=f"{name} {variant} {SUBJECTS[subject]}",
            target_length=target_length,
        )
        return replace(task, task_id=f"{name}/{task.task_id}")

    def grade(self, task: Task, completion: str) -> Grade:
        form, variant, subject = _asked(task)
        reply = (after_thinking(completion) or "").strip()
        if not reply or len(reply) > MAX_REPLY_CHARS:
            return Grade(reward=0.0, correct=0.0, components={"form": 0.0, "subject": 0.0})
        closeness = form.closeness(variant, reply) * (1.0 if is_varied(reply) else 0.5)
        names_it = float(subject in reply.lower())
        return Grade(
            reward=FORM_WEIGHT * closeness + SUBJECT_WEIGHT * names_it,
            correct=float(closeness == 1.0),
            components={"form": closeness, "subject": names_it},
        )

    def demonstration(self, task: Task, draw: int) -> str:  # noqa: ARG002 - one example each
        form, variant, subject = _asked(task)
        return form.example(variant, subject)

    def alphabet(self) -> str:
        return ASCII

    def _strata(self, split: Split) -> tuple[Stratum, ...]:
        return tuple(Stratum(name=name, num_tasks=self._size(split, name), weight=1) for name in self._names)

    def _size(self, split: Split, name: str) -> int:
        return len(self._subjects[split]) * len(REQUESTS) * FORMS[name].num_variants

    def _parts(self, split: Split, name: str, inner: int) -> tuple[int, int, int]:
        """(subject, request, variant) of a form's task number `inner`, in the seed's own order."""
        rest, variant = divmod(self._orders[split, name].at(inner), FORMS[name].num_variants)
        place, request = divmod(rest, len(REQUESTS))
        return self._subjects[split][place], request, variant


def _asked(task: Task) -> tuple[Form, int, str]:
    """Form, variant and subject of a task."""
    name, variant, subject = task.answer.split(" ")
    return FORMS[name], int(variant), subject
