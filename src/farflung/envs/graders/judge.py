"""judge@1: does an answer state the same as the reference? For texts that no rule can compare.

    answer      what stands in <answer>, \\boxed{}, after #### or "answer is"; nothing else of the completion is shown

In this order, and the first that decides ends it:

    1  no marked answer, none with a letter or digit, longer than `max_answer_chars` -> 0; the same text -> 1
    2  the judge is asked, and says no -> 0
    3  it is asked again with the letters for yes and no exchanged, and says no -> undecided
    4  it is asked whether the answer says a *decoy* that nobody would answer. No -> 1. Yes -> the answer talks it into
       anything: 0, unless the judge says yes to the reference itself against the decoy too: then it is broken

An answer of thousands of instructions to the judge is a 0 by step 1; one that sways it is a 0 by step 4.
"""

from collections.abc import Mapping

from pydantic import Field

from farflung.envs.arguments import parse_arguments
from farflung.envs.graders.judge_bench import JudgeConfig, Session, endpoint_bench
from farflung.envs.graders.judge_grader import JudgeGrader, Reference
from farflung.envs.graders.judge_prompt import Labels, decoy_of, same_question
from farflung.rewards.decision import Decision
from farflung.rewards.exact import grade_text
from farflung.rewards.extract import final_answer, tagged
from farflung.rewards.verifiers.spoken import spoken_text
from farflung.wire.pool import EnvArg


class SameConfig(JudgeConfig):
    """Arguments of judge@1."""

    max_answer_chars: int = Field(300, ge=1, le=20_000)
    """A longer answer is wrong; it is never cut."""
    min_odds: float = Field(0.5, ge=0.5, lt=1)
    """Probability of yes, among yes and no, above which the judge has said yes."""


class SameRules:
    """Implements `JudgeRules`."""

    def __init__(self, config: SameConfig) -> None:
        self._config = config

    def answer_in(self, completion: str) -> str:
        return tagged(spoken_text(completion)) or final_answer(completion) or ""

    def without_judge(self, told: Reference, answer: str) -> Decision | None:
        if not answer:
            return Decision(0.0, "no_answer")
        if not any(character.isalnum() for character in answer):
            return Decision(0.0, "no_content")
        if len(answer) > self._config.max_answer_chars:
            return Decision(0.0, "too_long", f"{len(answer)} characters, at most {self._config.max_answer_chars}")
        return Decision(1.0, "same_text") if grade_text(told.answer, answer) == 1.0 else None

    def with_judge(self, told: Reference, answer: str, session: Session) -> Decision:
        labels = session.draw(answer)
        if not self._says_yes(session, told, answer, labels):
            return Decision(0.0, "judged_other")
        if not self._says_yes(session, told, answer, Labels(labels.no, labels.yes)):
            return Decision(None, "judge_undecided", "the verdict changes with the letters", undecided=True)
        decoy = Reference(answer=decoy_of(told.answer, session.rng))
        if not self._says_yes(session, decoy, answer, session.draw(answer)):
            return Decision(1.0, "judged_same")
        if self._says_yes(session, decoy, told.answer, session.draw(told.answer)):
            return Decision(None, "judge_says_yes_to_anything")
        return Decision(0.0, "sways_judge", "the judge takes the answer for a text that it does not say")

    def _says_yes(self, session: Session, told: Reference, answer: str, labels: Labels) -> bool:
        messages = same_question(told.question, told.answer, answer, labels)
        return session.ask(messages, labels) > self._config.min_odds


def build_judge(args: Mapping[str, EnvArg]) -> JudgeGrader:
    """Raises `UserError` for a wrong argument."""
    config = parse_arguments(SameConfig, "judge", args, "grader")
    return JudgeGrader(endpoint_bench(config), SameRules(config))
