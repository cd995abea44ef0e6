"""Code output, unscrambled sentences, trees, JSON values: what counts as the same."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rewards.verifiers.ascii_tree import grade_ascii_tree
from farflung.rewards.verifiers.code_output import canonical_literal, grade_code_output
from farflung.rewards.verifiers.json_value import grade_json_value
from farflung.rewards.verifiers.spoken import answer_text, last_block
from farflung.rewards.verifiers.unscramble import grade_unscramble


@pytest.mark.parametrize(
    ("expected", "answer", "verdict"),
    [
        ("[1, 'a', (2,)]", '[1,"a",( 2, )]', 1.0),
        ("'it\\'s'", '"it\'s"', 1.0),
        ("'a b'", "'ab'", 0.0),
        ("{'a': 1}", "{'a': 2}", 0.0),
        ("[1]", "[1.0]", 0.0),
        ("[True]", "[true]", 0.0),
        ("3", "The answer is 3.", 1.0),
        ("3", "\\boxed{3}", 1.0),
        ("3", "3 or 4", 0.0),
        ("a  \nb\n\n", "```\na\nb\n```", 1.0),
        ("  a", "```\na\n```", 0.0),
        ("1 2", "12", 0.0),
        ("7", "__import__('os').getpid()", 0.0),  # case 38
        ("7", "I think 6, 7 or 8", 0.0),  # case 32
    ],
)
def test_an_output_is_foretold_or_not(expected: str, answer: str, verdict: float) -> None:
    assert grade_code_output(expected, answer).verdict == verdict


_python_values = st.recursive(
    st.integers() | st.booleans() | st.none() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(one=_python_values, other=_python_values)
def test_two_values_have_the_same_literal_only_if_they_print_alike(one: object, other: object) -> None:
    assert (canonical_literal(repr(one)) == canonical_literal(repr(other))) == (repr(one) == repr(other))


REFERENCE = '["A b.", "C d.", "E f.", "G h."]'


@pytest.mark.parametrize(
    ("answer", "verdict", "partial"),
    [
        ("A b.\nC d.\nE f.\nG h.", 1.0, 1.0),
        ("- A  b.\n\n- C d.\n- E f.\n- G h.", 1.0, 1.0),
        ("A b. C d. E f. G h.", 1.0, 1.0),
        ("1) C d.\n2) E f.\n3) G h.\n4) A b.", 0.0, 2 / 3),
        ("G h.\nE f.\nC d.\nA b.", 0.0, 0.0),
        ("A b.\nC d.\nE f.", 0.0, 0.0),
        ("A b.\nC d.\nE f.\nG h.\nG h.", 0.0, 0.0),
        ("A b.\nC d.\nE f.\nG H.", 0.0, 0.0),
    ],
)
def test_sentences_are_in_order_or_not(answer: str, verdict: float, partial: float) -> None:
    assert grade_unscramble(REFERENCE, answer).verdict == verdict
    assert grade_unscramble(REFERENCE, answer, partial=True).verdict == pytest.approx(partial)


def test_a_random_order_earns_one_nth_on_average() -> None:
    sentences = json.loads(REFERENCE)
    orders = list(itertools.permutations(sentences))
    earned = sum(grade_unscramble(REFERENCE, "\n".join(order), partial=True).verdict or 0 for order in orders)
    assert earned / len(orders) == pytest.approx(1 / 4)


def test_sentences_that_begin_like_a_list_stay_whole() -> None:
    reference = '["1. e4 e5", "2. Nf3 Nc6"]'
    assert grade_unscramble(reference, "1. e4 e5\n2. Nf3 Nc6").verdict == 1.0
    assert grade_unscramble(reference, "2. Nf3 Nc6\n1. e4 e5").verdict == 0.0


def test_equal_sentences_do_not_pay_for_another_order() -> None:
    reference = '["A.", "B.", "A.", "B.", "B."]'
    for order in set(itertools.permutations(json.loads(reference))):
        verdict = grade_unscramble(reference, "\n".join(order), partial=True).verdict
        assert verdict is not None
        assert (verdict == 1.0) == (list(order) == json.loads(reference))


TREE = "src\n├── a\n│   ├── x.py\n│   └── y.py\n└── b\n    └── x.py"


@pytest.mark.parametrize(
    ("answer", "partial"),
    [
        (TREE.replace("y.py", "z.py"), 5 / 7),
        (TREE.replace("└── b\n    └── x.py", "└── b"), 5 / 6),
        (TREE.replace("├── a", "├── c"), 3 / 9),
        (TREE.replace("├──", "|--"), 3 / 9),
        ("src", 1 / 6),
        ("nothing alike", 0.0),
    ],
)
def test_a_tree_that_is_off_earns_the_lines_that_are_right(answer: str, partial: float) -> None:
    assert grade_ascii_tree(TREE, answer).verdict == 0.0
    assert grade_ascii_tree(TREE, answer, partial=True).verdict == pytest.approx(partial)


def test_the_lines_of_a_tree_in_another_order_are_not_the_tree() -> None:
    swapped = "src\n├── a\n│   └── y.py\n│   ├── x.py\n└── b\n    └── x.py"
    assert grade_ascii_tree(TREE, swapped).verdict == 0.0
    assert grade_ascii_tree(TREE, swapped, partial=True).verdict == pytest.approx(6 / 7)


@pytest.mark.parametrize(
    ("expected", "answer", "verdict"),
    [
        ('{"a": 1, "b": [1, 2]}', '{"b": [1, 2.0], "a": 1.0}', 1.0),
        ("[1, 2]", "[2, 1]", 0.0),
        ("true", "1", 0.0),
        ("12345678901234567890", "12345678901234567891", 0.0),
        ("1", "NaN", 0.0),
        ("1", "1e999", 0.0),
        ("1", "1" * 5000, 0.0),
        ("1", "[" * 100 + "]" * 100, 0.0),
        ('{"a": 1}', '{"a": 1, "a": 1}', 0.0),
    ],
)
def test_json_values_are_the_same_or_not(expected: str, answer: str, verdict: float) -> None:
    assert grade_json_value(expected, answer).verdict == verdict


def test_partial_json_counts_keys_of_both() -> None:
    assert grade_json_value('{"a": 1, "b": 2}', '{"a": 1, "c": 3}', partial=True).verdict == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("no block", None),
        ("```\na\n```\n```py\nb\n```\nend", "b"),
        ("````\n```\na\n```\n````", "```\na\n```"),
        ("~~~\na\n```\n~~~", "a\n```"),
        ("```\na\n```\n```\ncut short", "a"),
        ("`inline` ```x``` code", None),
        ("```a``` inline\nb", None),
        ("```\ncut short", None),
    ],
)
def test_the_last_fenced_block_is_found(text: str, block: str | None) -> None:
    assert last_block(text) == block


def test_an_answer_is_marked_or_fenced_or_everything() -> None:
    assert answer_text("<think>```\nno\n```</think>x\n<answer>\n```\n  yes\r\n```\n</answer>") == "  yes"
    assert answer_text("all of it\n") == "all of it"
    assert answer_text("<think>open") == ""
