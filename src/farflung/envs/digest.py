"""A digest of what an environment asks, to notice that the data of a run have changed.

A sample of tasks stands for all: the first and the last of each split, and some spread evenly between. Grading is not
looked at; the version of the package that the environment comes from is beside it.
"""

import hashlib
from importlib.metadata import PackageNotFoundError, version

from farflung.envs.base import Environment, Split

NUM_AT_ENDS = 16
NUM_SPREAD = 32


def data_digest(environment: Environment) -> str:
    """Hex sha256 over sizes, thinking budgets and sampled tasks of both splits."""
    hasher = hashlib.sha256(b"farflung/data/1")
    sizes: list[tuple[Split, int]] = [("train", environment.num_tasks), ("heldout", environment.num_heldout_tasks)]
    hasher.update(repr((environment.name, sizes, environment.target_lengths)).encode())
    budgets = environment.target_lengths or (0,)
    for split, size in sizes:
        for index in _sample(size):
            data = environment.task(split, index, budgets[index % len(budgets)]).to_bytes()
            hasher.update(len(data).to_bytes(8, "big") + data)
    return hasher.hexdigest()


def package_of(environment: Environment) -> tuple[str, str]:
    """(package, version) that the environment's class comes from; version "" if it is not installed as a package."""
    package = type(environment).__module__.partition(".")[0]
    try:
        return package, version(package)
    except PackageNotFoundError:
        return package, ""


def _sample(size: int) -> list[int]:
    spread = range(0, size, max(1, size // NUM_SPREAD))
    return sorted({*range(min(size, NUM_AT_ENDS)), *range(max(0, size - NUM_AT_ENDS), size), *spread})
