"""The page of settings is current, and a part of it can be asked for."""

from pathlib import Path

import pytest

from farflung.cli import main
from farflung.cli.config import RunConfig
from farflung.cli.settings import CONFIGS, as_markdown
from farflung.config.fields import keys
from farflung.config.reference import sections

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_u1_defaults_in_the_docs_are_those_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == as_markdown(
        [section for config in CONFIGS for section in sections(config)]
    ), "run `farflung settings --markdown > docs/settings.md`"


def test_every_key_has_a_line_and_a_meaning() -> None:
    listed = [setting for section in sections(RunConfig) for setting in section.settings]
    assert {each.name for each in listed} == {key.name for key in keys(RunConfig) if key.section is None}
    assert [each.name for each in listed if not each.meaning or not each.type] == []


def test_a_word_finds_names_first_and_meanings_where_no_name_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["settings", "group_size"]) == 0
    assert capsys.readouterr().out == (
        "[pool]  The rules that all roles share; they cannot change during a run.\n"
        "  pool.group_size = 8\n"
        "      whole number; at least 2. Rollouts per task; an advantage needs two to compare.\n\n"
    )
    assert main.main(["settings", "an advantage needs"]) == 0
    assert "pool.group_size = 8" in capsys.readouterr().out


def test_a_word_that_nothing_has_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["settings", "learning_rate_of_change"]) == 2
    assert capsys.readouterr().err.startswith("farflung: no setting has 'learning_rate_of_change'")
