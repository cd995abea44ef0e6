"""judge-pair@1: is a reply better than a reference reply? For tasks without a right answer.

    reference   JSON {"answer": "...", "question": "..."}: the reply to beat
    reply       what stands in <answer>, else all that follows the thinking part; longer than `max_answer_chars` -> 0

The judge is asked twice, with the order of the two replies and the letters exchanged. Worse both times -> 0. Better
both times -> it is asked whether the reply is also better than a plain right answer to a question that has nothing to
do with it (`CONTROLS`). No -> 1. Yes -> the reply talks it into anything: 0, unless the reference does so too: then it
is broken. Anything else depends on the order and is undecided, which is "cannot be graded", as is a judge that is down,
slow or writes something else. A reply equal to the reference is no better: 0. Not reproducible.
"""

from collections.abc import Mapping

from pydantic import Field

from farflung.envs.arguments import parse_arguments
from farflung.envs.graders.judge_bench import JudgeConfig, Session, endpoint_bench
from farflung.envs.graders.judge_grader import JudgeGrader, Reference
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


class PairRules:
    """Implements `JudgeRules`."""

    def __init__(self, config: PairConfig) -> None:
        self._config = config

    def answer_in(self, completion: str) -> str:
        spoken = spoken_text(completion)
        return tagged(spoken) or spoken

    def without_judge(self, told: Reference, answer: str) -> Decision | None:
        if not any(character.isalnum() for character in answer):
            return Decision(0.0, "no_answer")
        if len(answer) > self._config.max_answer_chars:
            return Decision(0.0, "too_long", f"{len(answer)} characters, at most {self._config.max_answer_chars}")
        return Decision(0.0, "same_text") if grade_text(told.answer, answer) == 1.0 else None

    def with_judge(self, told: Reference, answer: str, session: Session) -> Decision:
        is_better_first = _is_first_better(session, told.question, answer, told.answer)
        is_better_second = not _is_first_better(session, told.question, told.answer, answer)
        if is_better_first != is_better_second:
            return Decision(None, "judge_undecided", "the verdict changes with the order", undecided=True)
        if not is_better_first:
            return Decision(0.0, "judged_worse")
        question, right = session.rng.choice(CONTROLS)
        if not _is_first_better(session, question, answer, right):
            return Decision(1.0, "judged_better")
        if _is_first_better(session, question, told.answer, right):
            return Decision(None, "judge_says_yes_to_anything")
        return Decision(0.0, "sways_judge", "the judge prefers the reply to a right answer to another question")


def _is_first_better(session: Session, question: str, first: str, second: str) -> bool:
    labels = session.draw(first, second)
    return session.ask(pair_question(question, first, second, labels), labels) > 0.5


def build_pair_judge(args: Mapping[str, EnvArg]) -> JudgeGrader:
    """Raises `UserError` for a wrong argument."""
    config = parse_arguments(PairConfig, "judge-pair", args, "grader")
    return JudgeGrader(endpoint_bench(config), PairRules(config))
