from importlib.metadata import version
from typing import Any

import pytest
from msgspec.structs import replace

from farflung.envs.base import Environment, Split
from farflung.envs.digest import data_digest, package_of
from farflung.envs.named import NamedEnvironment
from farflung.envs.registry import load_environment
from farflung.wire.task import Task


def an_environment(seed: int = 0, **changes: Any) -> Environment:
    return load_environment("sort-digits", seed, {"num_digits": 3, **changes})


class Edited(NamedEnvironment):
    """One task asks something else."""

    def __init__(self, split: Split, index: int) -> None:
        super().__init__(an_environment())
        self.place = (split, index % (self.num_tasks if split == "train" else self.num_heldout_tasks))

    def task(self, split: Split, index: int, target_length: int = 0) -> Task:
        task = super().task(split, index, target_length)
        return replace(task, answer="other") if (split, index) == self.place else task


def test_the_same_data_have_the_same_digest() -> None:
    assert (
        data_digest(an_environment())
        == data_digest(an_environment())
        == data_digest(NamedEnvironment(an_environment()))
    )


def test_another_seed_or_argument_has_another() -> None:
    digests = {
        data_digest(an_environment()),
        data_digest(an_environment(seed=1)),
        data_digest(an_environment(num_digits=4)),
    }
    assert len(digests) == 3


@pytest.mark.parametrize("split", ["train", "heldout"])
@pytest.mark.parametrize("index", [0, 15, -1, -16])
def test_a_task_at_either_end_counts(split: Split, index: int) -> None:
    assert data_digest(Edited(split, index)) != data_digest(an_environment())


def test_the_package_is_the_one_of_its_class() -> None:
    assert package_of(an_environment()) == ("farflung", version("farflung"))
    assert package_of(type("Lonely", (Edited,), {"__module__": "nowhere"})("train", 0)) == ("nowhere", "")
