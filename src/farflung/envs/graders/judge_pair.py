"""A judge that says whether a reply is better than a reference reply, for tasks without a right answer.

    reference   JSON {"answer": "...", "question": "..."}: the reply to beat
    reply       what stands in <answer>, else all that follows the thinking part; longer than `max_answer_chars` -> 0

The judge is asked twice, with the order of the two replies and the letters exchanged. Worse both times -> 0. Better
both times -> it is asked whether the reply is also better than a plain right answer to a question that has nothing to
do with it (`CONTROLS`). No -> 1. Yes -> the reply talks it into anything: 0, unless the reference does so too: then it
is broken. Anything else depends on the order and is undecided, which is "cannot be graded", as is a judge that is down,
slow or writes something else. A reply equal to the reference is no better: 0. Not reproducible.
"""

import random
from collections.abc import Mapping
from typing import Self

from pydantic import Field

from farflung.envs.arguments import parse_arguments
from farflung.envs.graders.judge import Reference, read_reference
from farflung.envs.graders.judge_bench import Bench, JudgeConfig, Session, endpoint_bench
from farflung.envs.graders.judge_client import JudgeModel, NoBallot
from farflung.envs.graders.judge_prompt import pair_question
from farflung.rewards.decision import Decision
from farflung.rewards.exact import grade_text
from farflung.rewards.extract import tagged
from farflung.rewards.verifiers.spoken import spoken_text
from farflung.wire.pool import EnvArg

CONTROLS = (
    ("What is the capital of Mongolia?", "The capital of Mongolia is Ulaanbaatar."),
    ("How many legs does a spider have?", "A spider has eight legs."),
    ("Which gas do green plants take up from the air?", "They take up carbon dioxide."),
    ("Who wrote the play Hamlet?", "William Shakespeare wrote Hamlet."),
    ("At which temperature does water freeze at sea level?", "Water freezes at 0 degrees Celsius."),
)
"""Questions with plain right answers. One that the task itself is about makes a good reply "sway" the judge."""


class PairConfig(JudgeConfig):
    """Arguments of judge-pair@1."""

    max_answer_chars: int = Field(4_000, ge=1, le=100_000)
    """A longer reply is wrong; it is never cut."""


class PairJudgeGrader:
    """judge-pair@1; implements `Grader`."""

    def __init__(self, bench: Bench, config: PairConfig) -> None:
        self._bench = bench
        self._config = config

    @classmethod
    def from_args(cls, args: Mapping[str, EnvArg]) -> Self:
        """Raises `UserError` for a wrong argument."""
        config = parse_arguments(PairConfig, "judge-pair", args, "grader")
        return cls(endpoint_bench(config), config)

    @classmethod
    def from_model(cls, model: JudgeModel, rng: random.Random, config: PairConfig | None = None) -> Self:
        """A judge of the caller's own."""
        config = config or PairConfig()
        return cls(Bench(model, config, rng), config)

    def grade(self, reference: str, completion: str) -> Decision:
        told = read_reference(reference)
        if told is None:
            return Decision(None, "gold_unparseable", 'the reference is JSON {"answer": "...", "question": "..."}')
        spoken = spoken_text(completion)
        reply = (tagged(spoken) or spoken).strip()
        if not any(character.isalnum() for character in reply):
            return Decision(0.0, "no_answer")
        if len(reply) > self._config.max_answer_chars:
            return Decision(0.0, "too_long", f"{len(reply)} characters, at most {self._config.max_answer_chars}")
        if grade_text(told.answer, reply) == 1.0:
            return Decision(0.0, "same_text")
        try:
            return self._compare(told, reply, self._bench.session())
        except NoBallot as trouble:
            return Decision(None, trouble.trouble.value, trouble.detail)

    def _compare(self, told: Reference, reply: str, session: Session) -> Decision:
        is_better_first = self._is_first_better(session, told.question, reply, told.answer)
        is_better_second = not self._is_first_better(session, told.question, told.answer, reply)
        if is_better_first != is_better_second:
            return Decision(None, "judge_undecided", "the verdict changes with the order", undecided=True)
        if not is_better_first:
            return Decision(0.0, "judged_worse")
        question, right = self._bench.rng.choice(CONTROLS)
        if not self._is_first_better(session, question, reply, right):
            return Decision(1.0, "judged_better")
        if self._is_first_better(session, question, told.answer, right):
            return Decision(None, "judge_says_yes_to_anything")
        return Decision(0.0, "sways_judge", "the judge prefers the reply to a right answer to another question")

    def _is_first_better(self, session: Session, question: str, first: str, second: str) -> bool:
        labels = self._bench.draw(first, second)
        return session.ask(pair_question(question, first, second, labels), labels) > 0.5
