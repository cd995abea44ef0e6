import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.rewards.code_blocks import CodeBlock, code_blocks, last_code_block

FENCES = st.sampled_from(["```", "````", "~~~", "~~~~", "```python", "~~~ py", "  ```", "    ```", "``", "```x`y"])
LINES = st.one_of(FENCES, st.text(alphabet="ab `~\t", max_size=6), st.just("print(1)"), st.just("</think>"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```\na\n```", "a"),
        ("```python\na\nb\n```\nThat is it.", "a\nb"),
        ("~~~python\na\n~~~", "a"),
        ("```\na\n```\n```\nb\n```", "b"),
        ("```\na\n```\n```\nb", "a"),
        ("````markdown\n```python\na\n```\n````", "```python\na\n```"),
        ("~~~\n```\na\n```\n~~~", "```\na\n```"),
        ("```\n~~~\n```", "~~~"),
        ("```\na\n````", "a"),
        ("```\na\n```python\nb\n```", "a\n```python\nb"),
        ("1. So:\n   ```python\n   if a:\n       b\n   ```", "if a:\n    b"),
        ("```python\r\na\r\nb\r\n```\r\n", "a\nb"),
        ("```\ns = '''\n    ```\n'''\n```", "s = '''\n    ```\n'''"),
        ("<think>```\na\n```</think>\n```\nb\n```", "b"),
        ("```\na\n```\n</think>\n```\nb\n```", "b"),
        ("```\na\u2028b\x0bc\n```", "a\u2028b\x0bc"),
    ],
)
def test_the_last_closed_block_after_thinking_is_found(text: str, code: str) -> None:
    assert last_code_block(text) == code


@pytest.mark.parametrize(
    "text",
    [
        "",
        "print(1)",
        "```",
        "```python\na",
        "so ```\na\n``` yes",
        "```a```\nb\n``",
        "```\n\n```",
        "<think>\n```\na\n```",
        "```\na\n```\n</think> I do not know",
        "```\na\n~~~",
        "````\na\n```",
    ],
)
def test_without_a_closed_block_after_thinking_there_is_no_code(text: str) -> None:
    assert last_code_block(text) is None


@pytest.mark.parametrize(
    ("info", "language"),
    [
        ("", ""),
        ("python", "python"),
        (" Python 3", "python"),
        ("{.python}", "python"),
        ("C++", "c++"),
        ("py title='a'", "py"),
    ],
)
def test_the_language_is_the_first_word_after_the_fence(info: str, language: str) -> None:
    assert list(code_blocks(f"```{info}\na\n```")) == [CodeBlock(language, "a", is_closed=True)]


def test_only_the_languages_that_are_asked_for_count() -> None:
    text = "```python\na\n```\n```text\nb\n```\n```\nc\n```"
    assert last_code_block(text) == "c"
    assert last_code_block(text, ("python", "py")) == "a"
    assert last_code_block(text, ("python", "")) == "c"
    assert last_code_block(text, ("rust",)) is None


def test_a_block_that_is_cut_short_says_so() -> None:
    assert list(code_blocks("```\na\n```\n```py\nb\nc")) == [
        CodeBlock("", "a", is_closed=True),
        CodeBlock("py", "b\nc", is_closed=False),
    ]


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    code = last_code_block(text)
    assert code is None or (code.strip() and all(line in text for line in code.split("\n")))


@given(st.lists(LINES, max_size=30))
def test_every_line_is_in_one_block_or_none_and_only_the_last_block_is_open(lines: list[str]) -> None:
    blocks = list(code_blocks("\n".join(lines)))
    assert all(block.is_closed for block in blocks[:-1])
    num_fences = sum(1 + block.is_closed for block in blocks)
    num_code_lines = sum(len(block.code.split("\n")) for block in blocks if block.code)
    assert num_fences + num_code_lines <= len(lines)


@given(st.text(alphabet=st.characters(exclude_characters="`\r\n"), max_size=40), st.sampled_from(["", "python"]))
def test_what_was_fenced_comes_back(code: str, language: str) -> None:
    assert list(code_blocks(f"intro\n```{language}\n{code}\n```\nend")) == [CodeBlock(language, code, is_closed=True)]


@pytest.mark.parametrize(
    "text",
    [
        "```\n" * 300_000,
        "`" * 1_000_000,
        "```" + " " * 1_000_000 + "x",
        " " * 1_000_000 + "```",
        "```\n" + "~~~\n" * 250_000,
    ],
    ids=["many fences", "one long fence", "long info", "long indent", "the other fence"],
)
def test_a_huge_text_is_read_in_one_pass(text: str) -> None:
    assert sum(block.code.count("\n") for block in code_blocks(text)) <= text.count("\n")
