import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from farflung.config import fields
from farflung.errors import UserError
from farflung.trainer.config import TrainerConfig
from farflung.trainer.lineage import FIXED, FREE, Lineage, changes, is_free, refuse, settings_of, software_changes

SETTINGS = settings_of(TrainerConfig())
LINEAGE = Lineage(settings=SETTINGS, data_digest="d" * 64, dtype="float32", software={"torch": "2.0", "farflung": "1"})


def classes_of(key: str) -> list[str]:
    return [entry for entry in (*FREE, *FIXED) if key == entry or (entry.endswith(".") and key.startswith(entry))]


def with_setting(key: str, value: object) -> Lineage:
    return replace(LINEAGE, settings={**SETTINGS, key: json.dumps(value)})


@pytest.mark.parametrize("key", sorted(fields.flatten(TrainerConfig().model_dump(mode="json"))))
def test_every_setting_of_the_trainer_is_in_exactly_one_class(key: str) -> None:
    """A new setting goes into FREE or FIXED of `trainer.lineage`."""
    assert len(classes_of(key)) == 1


@pytest.mark.parametrize("entry", [*FREE, *FIXED])
def test_a_class_names_settings_that_there_are(entry: str) -> None:
    assert any(entry in classes_of(key) for key in SETTINGS)


@given(key=st.sampled_from(sorted(SETTINGS)))
def test_another_value_is_a_change_unless_the_setting_is_free(key: str) -> None:
    found = changes(LINEAGE, with_setting(key, "something else"), SETTINGS)
    assert found == ([] if is_free(key) else [f'trainer.{key}: {SETTINGS[key]} -> "something else"'])


def test_what_has_come_or_gone_is_a_change() -> None:
    older = replace(LINEAGE, settings={key: value for key, value in SETTINGS.items() if key != "optimizer.lr"})
    newer = with_setting("optimizer.lr", 0.001)
    assert changes(older, newer, SETTINGS) == ["trainer.optimizer.lr: absent -> 0.001"]
    assert changes(LINEAGE, older, SETTINGS) == ["trainer.optimizer.lr: 1e-06 -> absent"]


def test_a_setting_that_is_newer_than_the_checkpoint_is_no_change_at_its_default() -> None:
    older = replace(LINEAGE, settings={key: value for key, value in SETTINGS.items() if key != "optimizer.lr"})
    assert changes(older, LINEAGE, SETTINGS) == []


def test_other_data_and_another_dtype_are_changes() -> None:
    other = replace(LINEAGE, data_digest="e" * 64, dtype="bfloat16")
    assert changes(LINEAGE, other, SETTINGS) == [
        f"tasks of the environment: {'d' * 16} -> {'e' * 16}",
        "dtype of the weights: float32 -> bfloat16",
    ]


def test_software_is_told_apart() -> None:
    other = replace(LINEAGE, software={"torch": "2.1", "farflung": "1"})
    assert changes(LINEAGE, other, SETTINGS) == []
    assert software_changes(LINEAGE, other) == ["torch: 2.0 -> 2.1"]
    assert software_changes(LINEAGE, LINEAGE) == []


def test_the_refusal_shows_each_difference_and_the_ways_out() -> None:
    refuse([])
    with pytest.raises(UserError) as caught:
        refuse(changes(LINEAGE, with_setting("optimizer.lr", 0.001), SETTINGS))
    assert str(caught.value) == (
        "this run was trained with other settings, data or numerics:\n"
        "  - trainer.optimizer.lr: 1e-06 -> 0.001\n"
        "continue it as it was, start another with --run.name NAME, or go on knowingly with "
        "--trainer.accept_changes true, which metrics.jsonl will say"
    )
