"""What the rules of a pool pin: packages and libraries, also those of members."""

from collections.abc import Mapping
from importlib.metadata import version

import pytest

from farflung.envs.registry import load_for_pool, sources_here
from farflung.envs.sources import differences, leaves, sources_of
from farflung.errors import UserError
from farflung.wire.pool import EnvArg, EnvironmentSpec

DIGEST = "ab" * 32


@pytest.mark.parametrize(
    ("name", "args", "found"),
    [
        ("sort-digits", {}, ("sort-digits",)),
        ("mixture", {"members": "a=sort-digits, sheep, b=sort-digits"}, ("sort-digits", "sheep")),
        ("budgeted:mixture", {"members": "sheep", "budget.targets": "8"}, ("sheep",)),
        ("mixture", {"members": "x=budgeted:sheep, cow", "x.budget.targets": "8"}, ("sheep", "cow")),
        ("reasoning-gym:games/all", {}, ("reasoning-gym:games/all",)),
    ],
)
def test_what_an_environment_is_made_of(name: str, args: Mapping[str, EnvArg], found: tuple[str, ...]) -> None:
    assert leaves(name, args) == found


def test_members_from_packages_are_pinned_by_digest_and_what_is_built_in_is_not() -> None:
    args = {"members": "sort-digits, sheep, x=budgeted:cow", "x.budget.targets": "8"}
    digests = {"sheep": DIGEST, "cow": "cd" * 32}
    assert sources_of("mixture", args, {}, lambda name: digests.get(name, "")) == {
        "sheep": f"package {DIGEST}",
        "cow": f"package {'cd' * 32}",
    }


def test_an_entry_point_is_pinned_by_distribution_and_version() -> None:
    assert sources_here("rough", {}) == {"rough": f"rough-environment {version('rough-environment')}"}
    assert sources_here("sort-digits", {}) == {}


def test_a_library_that_makes_tasks_is_pinned_by_its_version() -> None:
    pytest.importorskip("reasoning_gym")
    args = {"members": "sums=reasoning-gym:chain_sum, sort-digits"}
    assert sources_here("mixture", args) == {"reasoning-gym": f"reasoning-gym {version('reasoning-gym')}"}


def test_a_pool_that_pins_another_release_of_a_member_is_refused() -> None:
    args: dict[str, EnvArg] = {"members": "rough, sort-digits"}
    here = sources_here("mixture", args)
    spec = EnvironmentSpec(name="mixture", args=args, num_tasks=10, sources={"rough": "rough-environment 0.9"})
    with pytest.raises(UserError, match=f"rough is rough-environment 0.9 there and {here['rough']} here.*install"):
        load_for_pool(spec)
    absent = EnvironmentSpec(name="sort-digits", num_tasks=10, sources={"sheep": f"package {DIGEST}"})
    with pytest.raises(UserError, match=f"sheep is package {DIGEST} there and absent here"):
        load_for_pool(absent)


def test_what_is_the_same_here_is_no_difference() -> None:
    assert differences({"a": "a 1"}, {"a": "a 1", "b": "b 2"}) == []
