"""code@1 on the published solutions of HumanEval, and on programs that are none."""

import json
from collections.abc import Callable, Iterator

import pytest

from farflung.envs.graders.code import CodeGrader, CodeOptions
from farflung.envs.humaneval import HumanEval
from farflung.errors import UserError
from farflung.sandbox.code.config import CodePoolConfig
from farflung.sandbox.code.pool import CodePool

ENV = HumanEval(0, {})
ALL = range(ENV.num_heldout_tasks)
SOME = ALL[::20]


@pytest.fixture(scope="module")
def grader() -> Iterator[CodeGrader]:
    options = CodeOptions()
    try:
        pool = CodePool(CodePoolConfig(limits=options.limits()))
    except UserError as error:
        pytest.skip(f"not on this machine: {error}")
    with pool:
        yield CodeGrader(options, pool)


def verdict(grader: CodeGrader, index: int, program: Callable[[str, str], str]) -> float | None:
    """Of `program(published solution, name of the function)`."""
    task = ENV.task("heldout", index)
    solution = ENV.demonstration(task, 0).removeprefix("```python\n").removesuffix("```")
    entry = json.loads(task.answer)["entry"]
    return grader.grade(task.answer, f"```python\n{program(solution, entry)}\n```").verdict


def published(solution: str, entry: str) -> str:
    return solution


def empty(solution: str, entry: str) -> str:
    return ""


def without_the_function(solution: str, entry: str) -> str:
    return solution.replace(f"def {entry}(", f"def not_{entry}(")


def nothing(solution: str, entry: str) -> str:
    return f"def {entry}(*args, **kwargs):\n    pass\n"


def twice(solution: str, entry: str) -> str:
    """Right work, and then another result than the wanted one."""
    return f"{solution}\n_right = {entry}\ndef {entry}(*args):\n    return [_right(*args)] * 2\n"


WRONG = (empty, without_the_function, nothing, twice)


@pytest.mark.parametrize("index", SOME)
def test_a_published_solution_is_right_and_no_other_program_is(index: int, grader: CodeGrader) -> None:
    assert verdict(grader, index, published) == 1.0
    assert [verdict(grader, index, wrong) for wrong in WRONG] == [0.0] * len(WRONG)


@pytest.mark.slow
def test_every_published_solution_is_right_and_no_other_program_is(grader: CodeGrader) -> None:
    assert [index for index in ALL if verdict(grader, index, published) != 1.0] == []
    for wrong in WRONG:
        assert [index for index in ALL if verdict(grader, index, wrong) != 0.0] == [], wrong.__name__
