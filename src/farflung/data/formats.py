"""Published schemas: a record of theirs -> a task of ours, or why not.

    gsm8k         question, answer ("... #### 42")                                   math-exact@1
    math          problem, solution (with \\boxed{}), level                           math@1
    mbpp          task_id, text or prompt, code, test_list, test_setup_code          code@1
    humaneval     task_id, prompt, entry_point, test, canonical_solution             code@1
    synthetic-1   problem_id, task_type, prompt, verification_info                   by task_type
    synthetic-2   the same with more task types                                      by task_type
    intellect-2   the same; tasks of mathematics and code                            by task_type

`verification_info` is JSON in a text, or an object. A row that cannot be graded safely is skipped with its reason,
never guessed. This module reads no files; it looks at nothing of a record but the fields that it names.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from farflung.data.task_row import TaskRow
from farflung.rewards.extract import boxed
from farflung.rewards.verifiers.instructions.grade import grade_instructions
from farflung.sandbox.code.tests import CallTest, CallTests, PytestTests, ScriptTest, ScriptTests, write_tests

MAX_PROMPT_CHARACTERS = 200_000
BOXED = r"Put your final answer within \boxed{}."
PROGRAM = "Reply with the whole program, imports and helpers included, in one fenced block."

Record = Mapping[str, Any]


class Skipped(Exception):
    """The row is no task here; the message is the reason, one of few."""


Convert = Callable[[Record], TaskRow]


def convert(name: str, record: Record) -> TaskRow:
    """Raises `Skipped`."""
    row = FORMATS[name](record)
    if not row.prompt.strip():
        raise Skipped("no prompt")
    if len(row.prompt) > MAX_PROMPT_CHARACTERS:
        raise Skipped("prompt too long")
    if not row.answer.strip() and not row.grader.startswith("null@"):
        raise Skipped("no reference")
    return row


def detect(record: Record) -> str | None:
    """The format whose fields a record has; None if it is none of them, or may be two."""
    fields = record.keys()
    if {"problem_id", "task_type", "prompt", "verification_info"} <= fields:
        if any(field.startswith("solve_rate") for field in fields):
            return "intellect-2"
        return "synthetic-1" if {"gold_standard_solution", "in_source_id"} & fields else "synthetic-2"
    for name, needed in _FIELDS.items():
        if needed <= fields:
            return name
    return None


def _gsm8k(record: Record) -> TaskRow:
    question, solution = _text(record, "question"), _text(record, "answer")
    _, mark, answer = solution.rpartition("####")
    if not mark:
        raise Skipped("no answer after ####")
    return TaskRow(
        id=_id(record, "gsm8k", question),
        prompt=f"{question}\n\n{BOXED}",
        answer=answer.strip().replace(",", ""),
        grader="math-exact@1",
        solution=solution,
        source="gsm8k",
    )


def _math(record: Record) -> TaskRow:
    problem, solution = _text(record, "problem"), _text(record, "solution")
    answer = record["answer"] if isinstance(record.get("answer"), str) else boxed(solution)
    if not answer:
        raise Skipped("no boxed answer")
    return TaskRow(
        id=_id(record, "math", problem),
        prompt=f"{problem}\n\n{BOXED}",
        answer=answer,
        grader="math@1",
        level=str(record.get("level", "")),
        solution=solution,
        source="math",
    )


def _mbpp(record: Record) -> TaskRow:
    text = _text(record, "text") if "text" in record else _text(record, "prompt")
    asserts = record.get("test_list")
    if not isinstance(asserts, list) or not asserts or not all(isinstance(line, str) for line in asserts):
        raise Skipped("no tests")
    setup = record.get("test_setup_code") or "\n".join(record.get("test_imports") or [])
    source = "\n".join((str(setup), "from solution import *", *asserts))
    return TaskRow(
        id=_id(record, "mbpp", text),
        prompt=f"{text}\n\nIt must pass, for example:\n{asserts[0]}\n\n{PROGRAM}",
        answer=_tests(PytestTests(source=source)),
        grader="code@1",
        solution=_fenced(record.get("code")),
        source="mbpp",
    )


def _humaneval(record: Record) -> TaskRow:
    prompt, entry = _text(record, "prompt"), _text(record, "entry_point")
    return TaskRow(
        id=_id(record, "humaneval", prompt),
        prompt=f"Complete this Python function. {PROGRAM}\n\n```python\n{prompt.rstrip()}\n```",
        answer=_tests(PytestTests(source=f"{prompt}\n{_text(record, 'test')}", entry=entry)),
        grader="code@1",
        solution=_fenced(f"{prompt}{record.get('canonical_solution') or ''}"),
        source="humaneval",
    )


def _by_task_type(record: Record) -> TaskRow:
    kind = _text(record, "task_type")
    if kind not in _TASK_TYPES:
        raise Skipped(f"task type {kind[:40]}")
    grader, reference = _TASK_TYPES[kind](_info(record))
    solution = record.get("gold_standard_solution")
    level = next((f"{name} {value}" for name, value in record.items() if name.startswith("solve_rate")), "")
    return TaskRow(
        id=_text(record, "problem_id"),
        prompt=_text(record, "prompt"),
        answer=reference,
        grader=grader,
        level=level,
        solution=solution if isinstance(solution, str) else "",
        source=str(record.get("source") or kind),
    )


def _math_info(info: Record) -> tuple[str, str]:
    truth = info.get("ground_truth", info.get("answer"))
    if not isinstance(truth, str | int | float):
        raise Skipped("no ground truth")
    text = str(truth)
    return "math@1", boxed(text) or text


def _code_info(info: Record) -> tuple[str, str]:
    if str(info.get("language", "python")).lower() not in ("python", "python3"):
        raise Skipped("another language than Python")
    cases = info.get("test_cases")
    if isinstance(cases, str):
        cases = _loaded(cases)
    if isinstance(cases, dict):  # columns
        cases = [dict(zip(cases, values, strict=False)) for values in zip(*cases.values(), strict=False)]
    if not isinstance(cases, list) or not cases or not all(isinstance(case, dict) for case in cases):
        raise Skipped("no tests")
    kinds = {str(case.get("type", "stdin_stdout")) for case in cases}
    if kinds == {"stdin_stdout"}:
        tests = [ScriptTest(stdin=_as_text(case.get("input")), stdout=_as_text(case.get("output"))) for case in cases]
        return "code@1", _tests(ScriptTests(tests=tests))
    functions = {str(case.get("fn_name") or "") for case in cases}
    if kinds != {"function_call"} or len(functions) != 1 or "" in functions:
        raise Skipped("tests of several kinds")
    calls = [CallTest(args=_arguments(case.get("input")), expected=_expected(case.get("output"))) for case in cases]
    return "code@1", _tests(CallTests(function=functions.pop(), tests=calls))


def _output_info(info: Record) -> tuple[str, str]:
    expected = info.get("output", info.get("expected_output", info.get("ground_truth")))
    if expected is None:
        raise Skipped("no expected output")
    return "code-output@1", _as_text(expected)


def _ground_truth(grader: str) -> Callable[[Record], tuple[str, str]]:
    def reference(info: Record) -> tuple[str, str]:
        truth = info.get("ground_truth", info.get("answer", info.get("target")))
        if truth is None:
            raise Skipped("no ground truth")
        return grader, truth if isinstance(truth, str) else json.dumps(truth)

    return reference


def _schema_info(info: Record) -> tuple[str, str]:
    """A schema as JSON; the classes of pydantic that some rows have would have to be executed."""
    schema = info.get("json_schema", info.get("schema"))
    if isinstance(schema, str):
        schema = _loaded(schema)
    if not isinstance(schema, dict):
        raise Skipped("a schema that is Python code")
    return "json-schema@1", json.dumps(schema)


def _instructions_info(info: Record) -> tuple[str, str]:
    kinds, arguments = info.get("instruction_id_list"), info.get("kwargs", [])
    if not isinstance(kinds, list) or not isinstance(arguments, list) or len(kinds) != len(arguments):
        raise Skipped("no instructions")
    given = [{name: value for name, value in (each or {}).items() if value is not None} for each in arguments]
    reference = json.dumps({"instruction_id_list": kinds, "kwargs": given})
    if grade_instructions(reference, "any").verdict is None:
        raise Skipped("an instruction that is not known here")
    return "instructions@1", reference


_TASK_TYPES: Mapping[str, Callable[[Record], tuple[str, str]]] = {
    "verifiable_math": _math_info,
    "math": _math_info,
    "verifiable_code": _code_info,
    "prime_rl_code": _code_info,
    "code": _code_info,
    "code_output_prediction": _output_info,
    "verifiable_code_understanding": _output_info,
    "code_understanding": _output_info,
    "reverse_text": _ground_truth("text@1"),
    "unscramble_sentence": _ground_truth("unscramble@1"),
    "ascii_tree_formatting": _ground_truth("ascii-tree@1"),
    "git_diff": _ground_truth("git-diff@1"),
    "complex_json_output": _ground_truth("json-value@1"),
    "pydantic_adherance": _schema_info,
    "ifeval": _instructions_info,
    "null_reward": lambda _info: ("null@1", ""),
}
FORMATS: Mapping[str, Convert] = {
    "gsm8k": _gsm8k,
    "math": _math,
    "mbpp": _mbpp,
    "humaneval": _humaneval,
    "synthetic-1": _by_task_type,
    "synthetic-2": _by_task_type,
    "intellect-2": _by_task_type,
}
_FIELDS: Mapping[str, frozenset[str]] = {
    "humaneval": frozenset({"prompt", "entry_point", "test"}),
    "mbpp": frozenset({"code", "test_list"}),
    "gsm8k": frozenset({"question", "answer"}),
    "math": frozenset({"problem", "solution"}),
}


def _text(record: Record, field: str) -> str:
    value = record.get(field)
    if not isinstance(value, str) or not value.strip():
        raise Skipped(f"no {field}")
    return value


def _id(record: Record, source: str, text: str) -> str:
    """The source's own id, else one that follows from the text."""
    given = record.get("task_id", record.get("id", record.get("unique_id")))
    if isinstance(given, str | int) and str(given).isprintable() and str(given):
        return f"{source}/{given}"
    return f"{source}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _info(record: Record) -> Record:
    info = record["verification_info"]
    if isinstance(info, str):
        info = _loaded(info)
    if not isinstance(info, dict):
        raise Skipped("no verification_info")
    return info


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Skipped("JSON that cannot be read") from None


def _tests(tests: PytestTests | ScriptTests | CallTests) -> str:
    try:
        return write_tests(tests).decode()
    except (msgspec.MsgspecError, TypeError, RecursionError):
        raise Skipped("tests that cannot be written") from None


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(_as_text(item) for item in value)
    return value if isinstance(value, str) else json.dumps(value)


def _arguments(value: Any) -> list[Any]:
    """A list of arguments, or a text with one JSON value per line."""
    if isinstance(value, str):
        return [_loaded(line) for line in value.splitlines() if line.strip()]
    return value if isinstance(value, list) else [value]


def _expected(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 1:  # the published form wraps a result in a list
        return value[0]
    return _loaded(value) if isinstance(value, str) else value


def _fenced(code: Any) -> str:
    return f"```python\n{code.rstrip()}\n```" if isinstance(code, str) and code.strip() else ""
