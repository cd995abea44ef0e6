import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rewards.extract import after_thinking, boxed, final_answer, tagged


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{42}", "42"),
        (r"\boxed{\frac{1}{2}} it is", r"\frac{1}{2}"),
        (r"\boxed{1}, no, \boxed{2}", "2"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\}}", r"\}"),
        (r"\boxed 2", "2"),
        (r"$\boxed 2$.", "2"),
        (r"\boxed {7}", "7"),
        (r"\boxed{ 3 }", "3"),
        ("#### 18", "18"),
        ("#### 1\nno\n#### 2 \nbye", "2"),
        ("The answer is 12.", "12"),
        ("the final Answer is: -3\nok", "-3"),
        ("answer is 1. The answer is 3.5.", "3.5"),
        (r"The answer is 1 but \boxed{2}", "2"),
        (r"<think>\boxed{1}</think>\boxed{2}", "2"),
        (r"a</think> \boxed{1}</think> \boxed{2}", "2"),
    ],
)
def test_the_last_marked_answer_is_found(text: str, answer: str) -> None:
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I think 7, 12 or 42",
        r"\boxed{}",
        r"\boxed{ }",
        r"\boxed",
        r"\boxed{1} and \boxed{2",
        r"\boxed{\{1\}",
        "####",
        "the answer is",
        "the answer isn't 4",
        r"<think>\boxed{1}",
        r"<think>a</think>\boxed{1}<think>hm",
        r"<think>\boxed{1}</think> I do not know",
    ],
)
def test_without_a_complete_mark_after_thinking_there_is_no_answer(text: str) -> None:
    assert final_answer(text) is None


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("all", "all"),
        ("<think>a</think>b", "b"),
        ("a</think>b</think>c", "c"),
        ("<think>a", None),
        ("<think></think>b<think>", None),
        ("", ""),
    ],
)
def test_what_follows_the_last_closed_thinking_part(text: str, spoken: str | None) -> None:
    assert after_thinking(text) == spoken


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>1</answer> <answer>\n2 3\n</answer>!", "2 3"),
        ("<answer>1</answer><answer>2", None),
        ("1</answer>", None),
        ("<answer> </answer>", None),
        ("<answer>a<answer>b</answer>", "b"),
    ],
)
def test_the_last_tagged_answer_counts(text: str, answer: str | None) -> None:
    assert tagged(text) == answer


_pieces = st.sampled_from(["\\boxed", "{", "}", "\\", "<think>", "</think>", "####", "answer is", "\n", " ", "1", "x."])


@given(st.lists(_pieces).map("".join))
def test_no_text_raises_and_no_answer_is_blank_or_from_an_open_thought(text: str) -> None:
    answer = final_answer(text)
    assert answer is None or (answer == answer.strip() != "")
    assert final_answer(f"{text}<think>\\boxed{{1}}") is None


balanced = st.recursive(
    st.text(st.characters(exclude_characters="{}\\<", exclude_categories=["Cs"])),
    lambda inner: st.tuples(inner, inner, inner).map(lambda parts: f"{parts[0]}{{{parts[1]}}}{parts[2]}"),
)


@given(balanced, st.text())
def test_a_balanced_box_gives_back_its_content(content: str, before: str) -> None:
    assert boxed(f"{before} \\boxed{{{content}}} end") == (content.strip() or None)


@pytest.mark.parametrize("piece", ["\\boxed{", "{", "answer is ", "answer \t", "<answer>", "<think>", "####", "\\"])
def test_megabytes_of_a_repeated_mark_hold_no_answer_and_nobody_up(piece: str) -> None:
    flood = piece * 500_000  # quadratic work on this would run into the test's time limit

    assert final_answer(flood) is None
    assert tagged(flood) is None
