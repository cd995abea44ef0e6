"""A model as its reference."""

from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field

from farflung.config.base import Config
from farflung.config.reference import Section, Setting, sections


class Shape(StrEnum):
    LINEAR = "linear"
    COSINE = "cosine"


class Part(Config):
    """What a part is.

    More about it.
    """

    wait_s: float = Field(1.5, gt=0, le=60, description="Patience.")
    shape: Shape = Field(Shape.COSINE, description="Of the curve.")
    kinds: tuple[Literal["a", "b"], ...] = Field(("a",), description="Which.")
    folder: Path | None = Field(None, description="Where.")
    name: str = Field(pattern="^x$", description="Needed.")
    extra: dict[str, int] = Field({"a": 1}, description="More.")


class Whole(Config):
    """All."""

    is_on: bool = Field(True, description="Whether.")
    part: Part


def setting(name: str, type_: str, default: str, unit: str, bounds: str, meaning: str) -> Setting:
    return Setting(name=name, type=type_, default=default, unit=unit, bounds=bounds, meaning=meaning)


def test_every_kind_of_field_is_told_as_people_write_it() -> None:
    assert list(sections(Whole)) == [
        Section(name="", meaning="All.", settings=(setting("is_on", "true or false", "true", "", "", "Whether."),)),
        Section(
            name="part",
            meaning="What a part is.",
            settings=(
                setting("part.wait_s", "number", "1.5", "seconds", "above 0, at most 60", "Patience."),
                setting("part.shape", '"linear" or "cosine"', '"cosine"', "", "", "Of the curve."),
                setting("part.kinds", 'list of "a" or "b"', '["a"]', "", "", "Which."),
                setting("part.folder", "path or none", "none", "", "", "Where."),
                setting("part.name", "text", "", "", "of the form `^x$`", "Needed."),
                setting("part.extra", "table", "{a = 1}", "", "", "More."),
            ),
        ),
    ]
