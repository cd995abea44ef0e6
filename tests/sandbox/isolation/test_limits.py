"""Limits are checked when they are made."""

import json

import pytest

from farflung.sandbox.isolation.limits import MIB, Limits


def test_limits_survive_the_way_into_a_sandbox() -> None:
    limits = Limits(test_cpu_s=1.5, memory_bytes=128 * MIB)
    assert Limits(**json.loads(json.dumps(limits.as_dict()))) == limits


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"memory_bytes": 1 << 20}, "memory_bytes is 1048576; it must be at least 67108864"),
        ({"max_processes": 0}, "max_processes is 0; it must be positive"),
        ({"test_cpu_s": float("nan")}, "test_cpu_s is nan; it must be positive"),
        ({"test_cpu_s": 40.0}, "none may be smaller than the one before"),
        ({"total_wall_s": 1.0}, "none may be smaller than the one before"),
        ({"max_open_files": 4}, "max_open_files is 4; it must be at least 16"),
    ],
)
def test_wrong_limits_are_named(wrong: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Limits(**wrong)  # type: ignore[arg-type]
