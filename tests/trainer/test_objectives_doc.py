"""What docs/objectives.md says of defaults and names is what the code says (case U1)."""

import dataclasses
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
import torch

from farflung.config.base import Config
from farflung.rl.aggregate import Aggregation
from farflung.rl.estimators import Estimator
from farflung.rl.kl import LossKl, RewardKl
from farflung.rl.loss import LossInputs
from farflung.rl.objectives import OBJECTIVES
from farflung.trainer.config import ObjectiveConfig, ShapingConfig
from farflung.trainer.objective import make_objective

TEXT = (Path(__file__).parents[2] / "docs" / "objectives.md").read_text()


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    """Cells of the section's table, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return '""' if value == "" else str(value)


def defaults(config: type[Config], prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, field in config.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Config):
            found |= defaults(kind, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = shown(field.default)
    return found


def test_every_setting_stands_there_with_its_default() -> None:
    """Case U1 (d)."""
    documented = {key.strip("`"): default.strip("`") for key, default, _ in rows("Settings")}
    assert documented == defaults(ObjectiveConfig, "trainer.objective.") | defaults(ShapingConfig, "trainer.shaping.")


def test_every_objective_stands_there_with_its_parameters_and_their_defaults() -> None:
    documented = {
        name.strip("`"): dict(re.findall(r"`(\w+) = ([^`]+)`", cell)) for name, _, cell, _ in rows("Objectives")
    }
    coded = {
        name: {field.name: shown(field.default) for field in dataclasses.fields(params)}  # type: ignore[arg-type]
        for name, (params, _) in OBJECTIVES.items()
    }
    for fields in coded.values():
        fields.pop("max_length_tokens", None)  # the pool's, unless given
    assert documented == coded


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Advantages", get_args(Estimator)),
        ("KL to a reference", tuple(sorted({*get_args(LossKl), *get_args(RewardKl)}))),
    ],
)
def test_every_name_of_a_choice_stands_there(title: str, names: tuple[str, ...]) -> None:
    assert sorted(name.strip("`") for name, *_ in rows(title)) == sorted(names)


def test_where_an_estimator_of_the_kl_may_stand_is_as_documented() -> None:
    for name, _, _, in_loss, in_reward in rows("KL to a reference"):
        assert (name.strip("`") in get_args(LossKl)) == in_loss.startswith("yes")
        assert (name.strip("`") in get_args(RewardKl)) == in_reward.startswith("yes")


def test_every_aggregation_is_named() -> None:
    assert all(f"`{name}`" in section("Objectives") for name in get_args(Aggregation))


def test_the_objective_that_the_page_shows_works(monkeypatch: pytest.MonkeyPatch) -> None:
    code = section("An objective of your own").split("```python\n")[1].split("```")[0]
    module = ModuleType("losses_of_the_page")
    exec(compile(code, "docs/objectives.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    config = ObjectiveConfig(name=f"{module.__name__}:soft_reinforce", params={"cap": 2.0})
    logprobs_N = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    outputs = make_objective(config, max_length_tokens=8)(
        LossInputs(
            trainer_logprobs_N=logprobs_N,
            behaviour_logprobs_N=torch.tensor([-1.0, -7.0, torch.nan]),
            advantages_N=torch.tensor([1.0, -0.5, torch.nan]),
            loss_mask_N=torch.tensor([True, True, False]),
        ),
        2,
    )
    outputs.loss.backward()
    assert outputs.loss.item() == pytest.approx((1.0 - 2.0) / 2)
    assert logprobs_N.grad is not None
    assert logprobs_N.grad.tolist() == pytest.approx([-0.5, 0.5, 0.0])
    assert outputs.metrics["sum/my_weight"].item() == pytest.approx(3.0)
