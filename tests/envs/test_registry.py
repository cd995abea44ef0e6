import importlib
import re
import sys
from pathlib import Path

import pytest

from farflung.envs.registry import BUILT_IN, load_environment
from farflung.errors import UserError
from farflung.wire.pool import EnvArg


@pytest.mark.parametrize("name", sorted(BUILT_IN.keys() - {"dataset"}))  # which needs a folder: test_dataset.py
def test_built_in_environments_load_by_name(name: str) -> None:
    assert load_environment(name, 0, {}).name == name


@pytest.mark.parametrize(
    ("name", "meant"),
    [("sort_digits", "sort-digits"), ("ModSum", "mod-sum"), ("reasoning-gym", "reasoning-gym:<data set>")],
)
def test_an_unknown_name_is_answered_with_the_closest_and_the_list(name: str, meant: str) -> None:
    with pytest.raises(
        UserError, match=f'unknown environment "{name}"; did you mean {meant}.*known: sort-digits, mod-s'
    ):
        load_environment(name, 0, {})


@pytest.mark.parametrize("name", ["", "os:system", "sort-digits:x", "farflung.envs.sort_digits", "\x00"])
def test_a_name_never_names_a_module(name: str) -> None:
    with pytest.raises(UserError, match="unknown environment"):
        load_environment(name, 0, {})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"num_digit": 6}, "unknown setting num_digit .*sort-digits.*did you mean num_digits"),
        ({"num_digits": 0}, "num_digits is 0 .*at least 1.*example 6"),
        ({"num_digits": True}, "num_digits is true .*whole number"),
        ({"num_digits": 6.0}, "num_digits is 6.0 .*whole number"),
        ({"num_digits": 16}, "num_digits is 16 .*at most 15"),
    ],
)
def test_wrong_arguments_are_answered_with_value_rule_and_fix(args: dict[str, EnvArg], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_environment("sort-digits", 0, args)


def documented_example() -> str:
    """The environment that docs/environments.md writes out."""
    page = (Path(__file__).parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return next(block for block in blocks if "class " in block)


def test_the_environment_of_the_documentation_is_found_through_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "count_letters.py").write_text(documented_example(), encoding="utf-8")
    metadata = tmp_path / "count_letters-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: count-letters\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(
        "[farflung.environments]\ncount-letters = count_letters:CountLetters\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()

    env = load_environment("count-letters", 3, {"num_letters": 8})
    del sys.modules["count_letters"]

    task = env.task("train", 0)
    gold = env.demonstration(task, 0)
    assert gold is not None
    assert env.grade(task, gold).reward == 1.0
    assert env.grade(task, "").reward == 0.0
    assert set(task.messages[0].content + gold) <= set(env.alphabet() or "")
    assert len([line for line in documented_example().splitlines() if line.strip()]) <= 32
    with pytest.raises(UserError, match="did you mean count-letters"):
        load_environment("count-letter", 3, {})
