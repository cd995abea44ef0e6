"""Every published schema on rows in its own fields: what becomes a task, what is left out and why."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.data.formats import FORMATS, Skipped, convert, detect
from farflung.data.task_row import TaskRow
from farflung.envs.graders.registry import build_grader, grader_spec


def info(**fields: Any) -> str:
    return json.dumps(fields)


def row(task_type: str, verification_info: Any, **fields: Any) -> dict[str, Any]:
    return {
        "problem_id": "p_1",
        "task_type": task_type,
        "prompt": "Do it.",
        "verification_info": verification_info,
        **fields,
    }


GSM8K = {"question": "Two and two?", "answer": "2 + 2 = <<2+2=4>>4\n#### 1,004"}
MATH = {"problem": "What is $1+1$?", "solution": r"It is $\boxed{2}$.", "level": "Level 1", "type": "Algebra"}
MBPP = {
    "task_id": 11,
    "text": "Write a function to double a number.",
    "code": "def double(x):\n    return 2 * x",
    "test_list": ["assert double(2) == 4", "assert double(0) == 0"],
    "test_setup_code": "",
}
HUMANEVAL = {
    "task_id": "HumanEval/999",
    "prompt": "def one():\n    '''Give 1.'''\n",
    "entry_point": "one",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}
INTELLECT_2_MATH = row("verifiable_math", info(ground_truth="42"), solve_rate_qwen_r1_distill_7b=0.375)
INTELLECT_2_CODE = row(
    "prime_rl_code",
    info(language="python", test_cases=[{"type": "stdin_stdout", "input": "2\n", "output": "4\n"}]),
)
CALLS = row(
    "verifiable_code",
    info(
        language="python",
        test_cases=[{"type": "function_call", "fn_name": "add", "input": [1, 2], "output": [3]}],
    ),
)
EXAMPLES: list[tuple[str, dict[str, Any], str, str]] = [
    ("gsm8k", GSM8K, "math-exact@1", r"\boxed{1004}"),
    ("math", MATH, "math@1", r"\boxed{2}"),
    ("synthetic-1", row("verifiable_math", info(ground_truth="7"), in_source_id="x"), "math@1", r"\boxed{7}"),
    ("intellect-2", INTELLECT_2_MATH, "math@1", r"\boxed{42}"),
    ("synthetic-2", row("code_output_prediction", info(output="3")), "code-output@1", "<answer>3</answer>"),
    ("synthetic-2", row("reverse_text", info(ground_truth="cba")), "text@1", "cba"),
    ("synthetic-2", row("unscramble_sentence", info(ground_truth="1. a\n2. b")), "unscramble@1", ""),
    ("synthetic-2", row("null_reward", info()), "null@1", ""),
    (
        "synthetic-2",
        row("ifeval", info(instruction_id_list=["punctuation:no_comma"], kwargs=[{"x": None}])),
        "instructions@1",
        "No comma here.",
    ),
    (
        "synthetic-2",
        row("pydantic_adherance", info(json_schema={"type": "object", "required": ["a"]})),
        "json-schema@1",
        '{"a": 1}',
    ),
    ("synthetic-2", row("complex_json_output", info(ground_truth={"a": [1]})), "json-value@1", '{"a": [1]}'),
]


@pytest.mark.parametrize(("name", "record", "grader", "right"), EXAMPLES)
def test_a_row_becomes_a_task_whose_grader_takes_the_right_answer(
    name: str, record: dict[str, Any], grader: str, right: str
) -> None:
    task = convert(name, record)
    assert task.grader == grader
    assert task.prompt
    if right and not grader.startswith("math@"):  # math@1 asks a process where its rules are undecided; not needed here
        assert build_grader(grader_spec(grader)).grade(task.answer, right).verdict == 1.0


@pytest.mark.parametrize("record", [MBPP, HUMANEVAL, INTELLECT_2_CODE, CALLS])
def test_code_keeps_its_tests_as_the_sandbox_reads_them(record: dict[str, Any]) -> None:
    from farflung.sandbox.code.tests import read_tests

    name = detect(record)
    assert name is not None
    task = convert(name, record)
    assert task.grader == "code@1"
    read_tests(task.answer.encode())


def test_a_level_is_the_sources_solve_rate() -> None:
    assert convert("intellect-2", INTELLECT_2_MATH).level == "solve_rate_qwen_r1_distill_7b 0.375"
    assert convert("math", MATH).level == "Level 1"


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (GSM8K, "gsm8k"),
        (MATH, "math"),
        (MBPP, "mbpp"),
        (HUMANEVAL, "humaneval"),
        (INTELLECT_2_MATH, "intellect-2"),
        (row("verifiable_math", info(), gold_standard_solution="s", in_source_id="i"), "synthetic-1"),
        (row("ifeval", info()), "synthetic-2"),
        ({"text": "hello"}, None),
    ],
)
def test_a_schema_is_known_by_its_fields(record: dict[str, Any], name: str | None) -> None:
    assert detect(record) == name


@pytest.mark.parametrize(
    ("name", "record", "reason"),
    [
        ("gsm8k", {"question": "q", "answer": "no mark"}, "no answer after ####"),
        ("gsm8k", {"question": " ", "answer": "#### 1"}, "no question"),
        ("gsm8k", {"question": "q" * 200_001, "answer": "#### 1"}, "prompt too long"),
        ("math", {"problem": "p", "solution": "none"}, "no boxed answer"),
        ("math", {"problem": "p", "solution": r"\boxed{}"}, "no boxed answer"),
        ("mbpp", {"text": "t", "code": "c", "test_list": []}, "no tests"),
        ("synthetic-1", row("kernelbench", info()), "task type kernelbench"),
        ("synthetic-2", row("verifiable_math", "{"), "JSON that cannot be read"),
        ("synthetic-2", row("verifiable_math", "[" * 100_000), "JSON that cannot be read"),
        ("synthetic-2", row("verifiable_math", info()), "no ground truth"),
        ("synthetic-2", row("prime_rl_code", info(language="rust", test_cases=[])), "another language than Python"),
        ("synthetic-2", row("prime_rl_code", info(test_cases=[])), "no tests"),
        ("synthetic-2", row("pydantic_adherance", info(pydantic_config="import os")), "a schema that is Python code"),
        (
            "synthetic-2",
            row("ifeval", info(instruction_id_list=["made:up"], kwargs=[{}])),
            "an instruction that is not known here",
        ),
        (
            "intellect-2",
            row("code", info(test_cases=[{"type": "stdin_stdout"}, {"type": "function_call", "fn_name": "f"}])),
            "tests of several kinds",
        ),
    ],
)
def test_what_cannot_be_graded_safely_is_left_out_with_its_reason(
    name: str, record: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Skipped, match="^" + reason):
        convert(name, record)


def test_rows_without_an_id_get_one_that_follows_from_their_text() -> None:
    assert convert("gsm8k", GSM8K).id == convert("gsm8k", dict(GSM8K)).id
    assert convert("gsm8k", {**GSM8K, "question": "Another?"}).id != convert("gsm8k", GSM8K).id


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(FORMATS)), st.data())
def test_no_record_does_anything_but_become_a_task_or_be_left_out(name: str, data: st.DataObject) -> None:
    fields = ("question", "answer", "problem", "solution", "text", "prompt", "test_list", "task_type", "problem_id")
    keys = (*fields, "verification_info", "entry_point", "test", "code", "task_id", "test_setup_code")
    types = st.sampled_from(["verifiable_math", "prime_rl_code", "ifeval", "pydantic_adherance", "x"])
    record = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(keys, JSON)))
    record.setdefault("verification_info", data.draw(JSON))
    if data.draw(st.booleans()):
        record["task_type"] = data.draw(types)
    with suppress(Skipped):
        assert isinstance(convert(name, record), TaskRow)


# Everything that the three registries are known to have; what is None is counted and left out.
TASK_TYPES: dict[str, dict[str, Any] | None] = {
    "verifiable_math": {"ground_truth": "4"},
    "verifiable_code": {"language": "python", "test_cases": [{"type": "stdin_stdout", "input": "", "output": "1\n"}]},
    "prime_rl_code": {"language": "python", "test_cases": [{"type": "stdin_stdout", "input": "", "output": "1\n"}]},
    "code_output_prediction": {"output": "4"},
    "verifiable_code_understanding": {"output": "4"},
    "reverse_text": {"ground_truth": "ab"},
    "unscramble_sentence": {"ground_truth": "1. a\n2. b"},
    "ascii_tree_formatting": {"ground_truth": "a"},
    "pydantic_adherance": {"json_schema": {"type": "object"}},
    "ifeval": {"instruction_id_list": ["change_case:english_lowercase"], "kwargs": [{}]},
    "complex_json_output": {"ground_truth": "{}"},
    "git_diff": {"ground_truth": "a"},
    "null_reward": {},
    "reasoning_gym": None,
    "formatask": None,
    "kernelbench": None,
    "llm_judgeable_groundtruth_similarity": None,
}


@pytest.mark.parametrize("task_type", TASK_TYPES)
@pytest.mark.parametrize("name", ["synthetic-1", "synthetic-2", "intellect-2"])
def test_every_task_type_of_the_published_registries_becomes_a_task_or_is_counted(name: str, task_type: str) -> None:
    fields = TASK_TYPES[task_type]
    if fields is None:
        with pytest.raises(Skipped, match=f"^task type {task_type}"):
            convert(name, row(task_type, info()))
        return
    task = convert(name, row(task_type, info(**fields)))
    assert task.id
    build_grader(grader_spec(task.grader))
