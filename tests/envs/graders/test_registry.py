"""Graders by name and version: known, refused, and true to what they once said.

After adding a grader or a case: `python tests/envs/graders/test_registry.py` adds what is missing to the frozen
verdicts. It changes none: a grader that says otherwise than before needs another version.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from farflung.cli.config import RunConfig
from farflung.cli.pool_rules import build_pool
from farflung.envs import registry as environments
from farflung.envs.base import Grade, Split, graders_of
from farflung.envs.graders.base import as_grade
from farflung.envs.graders.judge_client import URL_VARIABLE
from farflung.envs.graders.registry import KINDS, are_reproducible, build_grader, grader_spec, require_known
from farflung.envs.named import NamedEnvironment
from farflung.envs.sort_digits import SortDigits
from farflung.errors import UserError
from farflung.rewards.decision import Decision
from farflung.wire.pool import EnvArg, EnvironmentSpec, GraderSpec
from farflung.wire.task import Task

FROZEN = Path(__file__).with_name("frozen_verdicts.json")

TREE = "a\n├── b\n└── c"
RULE = json.dumps({"instruction_id_list": ["punctuation:no_comma", "change_case:english_capital"], "kwargs": [{}, {}]})
CASES: list[tuple[str, dict[str, EnvArg], str, str]] = [
    ("text@1", {}, "Paris", "<answer>Paris</answer>"),
    ("text@1", {}, "Paris", "Paris or Rome"),
    ("integer@1", {}, "1000", "\\boxed{1{,}000}"),
    ("integer@1", {}, "1000", "I think 7, 12 or 1000"),
    ("integer@1", {}, "x", "1"),
    ("ascii-tree@1", {}, TREE, f"```\n{TREE}\n```"),
    ("ascii-tree@1", {"partial": True}, TREE, "a\n├── b"),
    ("code-output@1", {}, "[1, 'a']", '[1,"a"]'),
    ("code-output@1", {}, "1", "1.0"),
    ("git-diff@1", {}, '{"before": {"f": "x\\n"}, "after": {"f": "y\\n"}}', "--- f\n+++ f\n@@ -1 +1 @@\n-x\n+y"),
    ("git-diff@1", {}, '{"before": {"f": "x\\n"}, "after": {"f": "y\\n"}}', "--- f\n+++ f\n@@ -2 +2 @@\n-x\n+y"),
    ("instructions@1", {}, RULE, "FINE."),
    ("instructions@1", {"partial": True}, RULE, "fine."),
    ("instructions@1", {"loose": True}, RULE, "Sure, here:\nFINE."),
    ("json-schema@1", {}, '{"type": "array", "items": {"minimum": 2}}', "[2, 3]"),
    ("json-schema@1", {}, '{"type": "array", "items": {"minimum": 2}}', "[1]"),
    ("json-value@1", {}, '{"a": 1}', '{"a": 1.0}'),
    ("json-value@1", {"partial": True}, '{"a": 1, "b": 2}', '{"a": 1, "b": 3}'),
    ("math-exact@1", {}, "1/2", "\\boxed{0.5}"),
    ("math-exact@1", {}, "50", "\\boxed{50\\%}"),
    ("null@1", {}, "", "a poem"),
    ("unscramble@1", {}, '["A.", "B.", "C."]', "1. A.\n2. B.\n3. C."),
    ("unscramble@1", {"partial": True}, '["A.", "B.", "C."]', "B.\nC.\nA."),
]


def verdicts() -> list[dict[str, Any]]:
    found = []
    for label, args, reference, completion in CASES:
        decision = build_grader(grader_spec(label, args)).grade(reference, completion)
        case = {"grader": label, "args": args, "reference": reference, "completion": completion}
        found.append({**case, "verdict": decision.verdict, "rule": decision.rule})
    return found


class Judged(SortDigits):
    """Digits, sorted, by a grader of the test's choice."""

    name = "judged"

    def __init__(self, seed: int, args: Mapping[str, EnvArg]) -> None:
        super().__init__(seed, {})
        self.graders = (grader_spec(str(args.get("grader", "text@1"))),)

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        return replace(super().task(split, index, target_length), env=self.name)

    def grade(self, task: Task, completion: str) -> Grade:
        return as_grade(build_grader(self.graders[0]).grade(task.answer, completion))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "BUILT_IN", {**environments.BUILT_IN, Judged.name: Judged})


def pool_of(grader: str, **graders: Any) -> EnvironmentSpec:
    return EnvironmentSpec(name="judged", args={"grader": grader}, num_tasks=10, **graders)


def test_published_versions_never_change_their_verdicts() -> None:
    assert verdicts() == json.loads(FROZEN.read_text())


def test_every_reproducible_grader_has_frozen_verdicts() -> None:
    assert {label for label, *_ in CASES} == {label for label, kind in KINDS.items() if kind.is_reproducible}


def test_a_record_gives_the_same_grader_again() -> None:
    spec = grader_spec("unscramble@1", {"partial": True})
    assert build_grader(GraderSpec.from_bytes(spec.to_bytes())) is build_grader(spec)
    assert build_grader(spec) is not build_grader(grader_spec("unscramble@1"))
    assert spec.digest() != grader_spec("unscramble@1").digest()


@pytest.mark.parametrize(
    ("label", "args", "sentence"),
    [
        ("text@2", {}, "text@2 is not known here, which has version 1"),
        ("txt@1", {}, "did you mean text"),
        ("text@1", {"colour": "red"}, "argument of grader text"),
        ("unscramble@1", {"partial": "yes"}, "partial"),
        ("judge@1", {"min_odds": 0.2}, "min_odds"),
        ("judge@1", {"label_ids": "A"}, "label_ids"),
    ],
)
def test_what_is_not_known_here_is_refused_with_the_way_out(label: str, args: dict[str, EnvArg], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        require_known([grader_spec(label, args)])


@pytest.mark.parametrize("label", ["text", "@1", "text@0", "text@-1", "text@x", "text@1.5", "text@99999999"])
def test_a_label_is_a_name_with_a_version(label: str) -> None:
    with pytest.raises(UserError, match="NAME@VERSION"):
        grader_spec(label)


def test_judges_are_not_reproducible_and_rules_are() -> None:
    assert not are_reproducible([grader_spec("text@1"), grader_spec("judge@1")])
    assert are_reproducible([grader_spec("text@1"), grader_spec("instructions@1")])


@pytest.mark.usefixtures("judged")
def test_a_validator_refuses_rules_that_it_cannot_follow() -> None:
    specs = (grader_spec("text@1"),)
    assert graders_of(environments.load_for_grading(pool_of("text@1", graders=specs))) == specs
    with pytest.raises(UserError, match="text@7 is not known here"):
        environments.load_for_grading(pool_of("text@7", graders=(grader_spec("text@7"),)))
    with pytest.raises(UserError, match="grades with text@1 here, and the pool's rules say integer@1"):
        environments.load_for_grading(pool_of("text@1", graders=(grader_spec("integer@1"),)))
    with pytest.raises(UserError, match="the pool's rules say none"):
        environments.load_for_grading(pool_of("text@1"))


@pytest.mark.usefixtures("judged")
def test_a_validator_without_a_judge_refuses_and_a_worker_samples_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    spec = pool_of("judge@1", graders=(grader_spec("judge@1"),))
    with pytest.raises(UserError, match=URL_VARIABLE):
        environments.load_for_grading(spec)
    environment = environments.load_environment(spec.name, spec.seed, spec.args)
    assert environment.task("train", 0).messages


@pytest.mark.usefixtures("judged")
def test_a_mixture_and_a_named_environment_pass_their_graders_on() -> None:
    args: dict[str, EnvArg] = {"members": "judged, b=judged, c=judged, sort-digits", "c.grader": "integer@1"}
    mixture = environments.load_environment("mixture", 0, args)
    assert [spec.label for spec in graders_of(NamedEnvironment(mixture))] == ["text@1", "integer@1"]
    assert graders_of(environments.load_environment("sort-digits", 0, {})) == ()


@pytest.mark.usefixtures("judged")
def test_the_rules_of_a_pool_name_its_graders() -> None:
    config = RunConfig.model_validate({"run": {"name": "x"}, "environment": {"name": "judged"}})
    assert [spec.label for spec in build_pool(config).environment.graders] == ["text@1"]


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize(
    ("grader", "pool", "sentence"),
    [("text@3", {}, "text@3 is not known here"), ("judge@1", {"deterministic": True}, "may change its mind")],
)
def test_rules_that_cannot_be_followed_are_refused_at_the_start(
    grader: str, pool: dict[str, Any], sentence: str
) -> None:
    raw = {"run": {"name": "x"}, "environment": {"name": "judged", "args": {"grader": grader}}, "pool": pool}
    with pytest.raises(UserError, match=sentence):
        build_pool(RunConfig.model_validate(raw))


def test_partial_credit_is_paid_and_is_not_correct() -> None:
    assert as_grade(Decision(0.5, "share")) == Grade(reward=0.5, correct=0.0)
    assert as_grade(Decision(1.0, "same")) == Grade(reward=1.0, correct=1.0)
    assert as_grade(Decision(None, "no_rule")) == Grade(reward=None)


def main() -> None:
    frozen = json.loads(FROZEN.read_text()) if FROZEN.exists() else []
    keys = ("grader", "args", "reference", "completion")
    known = {json.dumps([each[key] for key in keys]): each for each in frozen}
    rows = [known.get(json.dumps([each[key] for key in keys]), each) for each in verdicts()]
    FROZEN.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
