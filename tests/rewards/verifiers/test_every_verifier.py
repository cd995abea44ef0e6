"""What every verifier promises, whatever it verifies."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.rewards.decision import Decision
from farflung.rewards.verifiers.ascii_tree import grade_ascii_tree
from farflung.rewards.verifiers.code_output import grade_code_output
from farflung.rewards.verifiers.git_diff import grade_git_diff
from farflung.rewards.verifiers.instructions.grade import grade_instructions
from farflung.rewards.verifiers.json_schema import grade_json_schema
from farflung.rewards.verifiers.json_value import grade_json_value
from farflung.rewards.verifiers.null import grade_null
from farflung.rewards.verifiers.unscramble import grade_unscramble

Grade = Callable[[str, str], Decision]

TREE = "root/\n├── a/\n│   └── b.txt\n└── c.txt"
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z]+$"},
            "ages": {"type": "array", "uniqueItems": True},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
)
DIFF_TASK = json.dumps({"before": {"a.txt": "one\ntwo\nthree\n"}, "after": {"a.txt": "one\n2\nthree\n"}})
DIFF = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
INSTRUCTIONS = json.dumps(
    {
        "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
        "kwargs": [{}, {"num_words": 3, "relation": "at least"}],
    }
)

GRADERS: dict[str, tuple[Grade, str, str]] = {
    "ascii_tree": (grade_ascii_tree, TREE, TREE),
    "ascii_tree, partial": (lambda r, c: grade_ascii_tree(r, c, partial=True), TREE, TREE),
    "code_output": (grade_code_output, "[1, 'a']", "[1, 'a']"),
    "git_diff": (grade_git_diff, DIFF_TASK, DIFF),
    "instructions": (grade_instructions, INSTRUCTIONS, "one two three"),
    "instructions, loose": (lambda r, c: grade_instructions(r, c, loose=True), INSTRUCTIONS, "one two three"),
    "instructions, partial": (lambda r, c: grade_instructions(r, c, partial=True), INSTRUCTIONS, "one two three"),
    "json_schema": (grade_json_schema, SCHEMA, '{"name": "ada", "ages": [1, 2]}'),
    "json_value": (grade_json_value, '{"a": [1, 2.5, null]}', '{"a": [1, 2.5, null]}'),
    "json_value, partial": (lambda r, c: grade_json_value(r, c, partial=True), '{"a": 1, "b": 2}', '{"b": 2, "a": 1}'),
    "unscramble": (grade_unscramble, '["One.", "Two.", "Three."]', "1. One.\n2. Two.\n3. Three."),
    "unscramble, partial": (
        lambda r, c: grade_unscramble(r, c, partial=True),
        '["One.", "Two.", "Three."]',
        "One.\nTwo.\nThree.",
    ),
}
JUDGING = pytest.mark.parametrize("name", GRADERS)

FRAGMENTS = (
    *("```", "~~~", "\n", "<answer>", "</answer>", "</think>", "<think>", "[", "{", '"', "\\", "@@ -1,1 +1,1 @@"),
    *("--- a/a.txt", "+++ b/a.txt", "├── ", "1. ", "nan", "1e999", "-", "+", "*", "<<", ">>", "\ud800", "\u2028", "\0"),
    *("One.", "Two."),
)
_fragments = st.sampled_from(FRAGMENTS)
HOSTILE = st.one_of(st.text(), st.lists(st.one_of(_fragments, st.text(max_size=3)), max_size=40).map("".join))


@JUDGING
@pytest.mark.parametrize(
    "wrap",
    [
        "{}",
        "<think>hm</think>{}",
        "Here:\n```\n{}\n```",
        "<answer>{}</answer>",
        "<think>x</think><answer>\n{}\n</answer>",
    ],
)
def test_the_reference_solution_scores_1(name: str, wrap: str) -> None:
    grade, reference, gold = GRADERS[name]
    is_reply = name.startswith("instructions") and not wrap.endswith("</think>{}")
    if is_reply:  # instructions are about the whole reply, marks and all
        wrap = "{}"
    decision = grade(reference, wrap.format(gold))
    assert decision.verdict == 1.0, decision


@JUDGING
@pytest.mark.parametrize("completion", ["", " \n", "<think>", "<think>never closed", "<think>x</think>"])
def test_a_reply_that_says_nothing_scores_0(name: str, completion: str) -> None:
    grade, reference, _ = GRADERS[name]
    assert grade(reference, completion).verdict == 0.0


@JUDGING
@given(completion=HOSTILE)
@settings(max_examples=60)
def test_no_text_makes_grading_raise_or_pay_too_much(name: str, completion: str) -> None:
    grade, reference, gold = GRADERS[name]
    for text in (completion, f"<answer>{completion}</answer>", gold + completion, completion + gold):
        decision = grade(reference, text)
        assert decision.verdict is not None, "no text makes an answer ungradable"
        assert 0.0 <= decision.verdict <= 1.0
        assert decision.rule.isidentifier()


@JUDGING
@given(reference=HOSTILE, completion=HOSTILE)
@settings(max_examples=60)
def test_no_reference_makes_grading_raise(name: str, reference: str, completion: str) -> None:
    grade, _, _ = GRADERS[name]
    verdict = grade(reference, completion).verdict
    assert verdict is None or 0.0 <= verdict <= 1.0


@JUDGING
def test_a_blank_reference_cannot_be_graded_against(name: str) -> None:
    assert GRADERS[name][0](" ", "x").verdict is None


@JUDGING
def test_a_megabyte_of_anything_is_read_once(name: str) -> None:
    """Quadratic code would take minutes here, and the test's time would be over."""
    grade, reference, gold = GRADERS[name]
    for piece in (
        "a",
        "[",
        "{",
        '"',
        "*",
        "<<",
        "```\n",
        "├",
        "-",
        "@@ -1,1 +1,1 @@\n",
        "One.\n",
        ". ",
        "\\",
        "<answer>",
    ):
        text = piece * (1_000_000 // len(piece))
        assert grade(reference, text).verdict is not None
        assert grade(reference, gold + "\n" + text).verdict is not None


def test_the_null_reward_abstains_where_something_is_said() -> None:
    assert grade_null("", "<think>x</think>a poem").verdict is None
    assert grade_null("", "<think>x").verdict == 0.0
    assert not grade_null("", "a poem").undecided, "nobody else is asked"
