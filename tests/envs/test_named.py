from collections.abc import Callable
from typing import Any

import pytest

from farflung.envs.base import Environment
from farflung.envs.named import NamedEnvironment
from farflung.envs.registry import load_environment
from farflung.errors import OurFault, Transient

HONEST = load_environment("sort-digits", 0, {"num_digits": 3})
TASK = HONEST.task("train", 7)


class Broken:
    """Somebody's environment with a bug in every method."""

    name = "broken"
    num_tasks = num_heldout_tasks = 5
    target_lengths = ()

    def __init__(self, error: Exception) -> None:
        self.error = error

    def task(self, *_: Any) -> Any:
        raise self.error

    grade = demonstration = task

    def alphabet(self) -> None:
        return None


CALLS: list[tuple[str, Callable[[Environment], Any]]] = [
    ("making task train/7", lambda environment: environment.task("train", 7)),
    ("grading task train/7", lambda environment: environment.grade(TASK, "1")),
    ("demonstrating task train/7", lambda environment: environment.demonstration(TASK, 0)),
]


@pytest.mark.parametrize(("what", "call"), CALLS)
def test_what_an_environment_raises_carries_its_name_and_what_it_was_asked(
    what: str, call: Callable[[Environment], Any]
) -> None:
    with pytest.raises(OurFault, match=f"^environment broken failed when {what}: KeyError: 'boom'$") as caught:
        call(NamedEnvironment(Broken(KeyError("boom"))))
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_error_that_says_whose_fault_it_is_passes() -> None:
    with pytest.raises(Transient, match=r"^the judge is away$"):
        NamedEnvironment(Broken(Transient("the judge is away"))).grade(TASK, "1")


def test_a_sound_environment_is_the_same_under_its_name() -> None:
    named = NamedEnvironment(HONEST)
    assert named.task("train", 7) == TASK
    assert named.grade(TASK, TASK.answer) == HONEST.grade(TASK, TASK.answer)
    assert named.demonstration(TASK, 3) == HONEST.demonstration(TASK, 3)
    assert named.alphabet() == HONEST.alphabet()
    for name in ("name", "num_tasks", "num_heldout_tasks", "target_lengths"):
        assert getattr(named, name) == getattr(HONEST, name)
