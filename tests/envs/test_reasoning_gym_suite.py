"""Categories of reasoning-gym as one environment."""

import pytest

from farflung.envs.base import level_of, strata_of
from farflung.envs.reasoning_gym_sets import REFUSED
from farflung.envs.registry import load_environment
from farflung.errors import UserError

SMALL = {"num_tasks": 20, "num_heldout_tasks": 4}


def test_a_category_is_a_mixture_of_its_usable_data_sets() -> None:
    suite = load_environment("reasoning-gym:algebra/all", 0, SMALL)
    names = [stratum.name for stratum in strata_of(suite)]
    assert names == ["polynomial_equations", "simple_equations"]
    assert not set(names) & set(REFUSED)
    assert (suite.num_tasks, suite.num_heldout_tasks) == (40, 8)
    task = suite.task("heldout", 0)
    assert task.env == suite.name == "reasoning-gym:algebra/all"
    assert level_of(suite, task) == "polynomial_equations"
    gold = suite.demonstration(task, 0)
    assert gold is not None
    assert suite.grade(task, gold).reward == 1.0


def test_arguments_hold_for_every_data_set() -> None:
    suite = load_environment("reasoning-gym:algebra/all", 0, {**SMALL, "answer_format": "boxed"})
    assert all("boxed" in suite.task("heldout", index).messages[0].content for index in range(4))


@pytest.mark.parametrize(
    ("name", "args", "sentence"),
    [
        ("algbra", {}, "did you mean algebra"),
        ("probability", {}, "has no category"),
        ("algebra", {"min_terms": 2}, "has no argument min_terms"),
        ("algebra", {"num_tasks": 0}, "num_tasks"),
    ],
)
def test_what_a_suite_does_not_know_is_named(name: str, args: dict[str, int], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        load_environment(f"reasoning-gym:{name}/all", 0, {**args})


def test_a_data_set_tells_the_difficulty_of_each_puzzle() -> None:
    environment = load_environment("reasoning-gym:chain_sum", 0, {"num_heldout_tasks": 30})
    levels = {level_of(environment, environment.task("heldout", index)) for index in range(30)}
    assert "num_digits 2, num_terms 3" in levels
    assert len(levels) > 3
