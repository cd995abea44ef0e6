"""A project folder to publish, and an index to publish it in."""

from collections.abc import Callable
from pathlib import Path

import pytest

from farflung.envs.packages.index import Index
from farflung.store.object_store import ObjectStore

MODULE = """
from farflung.envs.simple import Row, SimpleEnvironment


def environment(seed, args):
    return SimpleEnvironment(
        name="count-sheep",
        tasks=lambda number: Row(prompt=f"{number}=", answer=str(number)),
        num_tasks=50,
        rewards={"exact": lambda task, completion: float(completion == task.answer)},
        seed=seed,
    )
"""

PROJECT = """
[project]
name = "count-sheep"
version = "0.1.0"
description = "Numbers."
license = "MIT"
dependencies = ["farflung", "numpy>=1.26"]

[project.entry-points."farflung.environments"]
count-sheep = "count_sheep:environment"
"""

MakeProject = Callable[..., Path]


@pytest.fixture
def make_project(tmp_path: Path) -> MakeProject:
    """Writes a project; files may be replaced, or left out by None."""

    def make(folder: str = "project", **changes: str | None) -> Path:
        files: dict[str, str | None] = {
            "pyproject.toml": PROJECT,
            "README.md": "# Sheep\n",
            "LICENSE": "MIT\n",
            "src/count_sheep.py": MODULE,
        }
        for name, content in {**files, **changes}.items():
            if content is not None:
                path = tmp_path / folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
        return tmp_path / folder

    return make


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(ObjectStore(str(tmp_path / "index")), "file:///index")
