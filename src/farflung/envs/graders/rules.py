"""Graders that are one pure rule: a verifier with its options as arguments."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from farflung.config.base import Config
from farflung.envs.arguments import parse_arguments
from farflung.envs.graders.base import Grader, GraderKind
from farflung.rewards.decision import Decision
from farflung.rewards.exact import grade_integer, grade_text
from farflung.rewards.extract import final_answer, tagged
from farflung.rewards.verifiers.ascii_tree import grade_ascii_tree
from farflung.rewards.verifiers.code_output import grade_code_output
from farflung.rewards.verifiers.git_diff import grade_git_diff
from farflung.rewards.verifiers.instructions.grade import grade_instructions
from farflung.rewards.verifiers.json_schema import grade_json_schema
from farflung.rewards.verifiers.json_value import grade_json_value
from farflung.rewards.verifiers.null import grade_null
from farflung.rewards.verifiers.spoken import spoken_text
from farflung.rewards.verifiers.unscramble import grade_unscramble
from farflung.wire.pool import EnvArg

C = TypeVar("C", bound=Config)
Rule = Callable[..., Decision]


class NoOptions(Config):
    """The rule has none."""


class PartialOptions(Config):
    partial: bool = False
    """Pay the share that the verifier declares instead of all or nothing."""


class InstructionOptions(PartialOptions):
    loose: bool = False
    """Forgive an introduction, a farewell and emphasis."""


@dataclass(frozen=True, slots=True)
class RuleGrader:
    """A rule with its options bound; implements `Grader`."""

    rule: Rule
    options: Mapping[str, Any]

    def grade(self, reference: str, completion: str) -> Decision:
        return self.rule(reference, completion, **self.options)


def marked_answer(completion: str) -> str:
    """The marked answer of a completion, else all of it after the thinking part."""
    spoken = spoken_text(completion)
    return tagged(spoken) or final_answer(completion) or spoken


def _text(reference: str, completion: str) -> Decision:
    verdict = grade_text(reference, marked_answer(completion))
    return Decision(verdict, "gold_blank" if verdict is None else "same_text" if verdict else "other_text")


def _integer(reference: str, completion: str) -> Decision:
    verdict = grade_integer(reference, marked_answer(completion))
    return Decision(verdict, "gold_unparseable" if verdict is None else "same_integer" if verdict else "other_integer")


def _kind(name: str, rule: Rule, options: type[Config] = NoOptions) -> GraderKind:
    def build(args: Mapping[str, EnvArg]) -> Grader:
        return RuleGrader(rule, parse_arguments(options, name, args, "grader").model_dump())

    return GraderKind(name=name, version=1, build=build)


RULE_KINDS = (
    _kind("text", _text),
    _kind("integer", _integer),
    _kind("ascii-tree", grade_ascii_tree, PartialOptions),
    _kind("code-output", grade_code_output),
    _kind("git-diff", grade_git_diff),
    _kind("instructions", grade_instructions, InstructionOptions),
    _kind("json-schema", grade_json_schema),
    _kind("json-value", grade_json_value, PartialOptions),
    _kind("null", grade_null),
    _kind("unscramble", grade_unscramble, PartialOptions),
)
