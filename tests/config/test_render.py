"""A config written as TOML loads back to itself, and its digest tells configs apart."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from farflung.config.base import Config
from farflung.config.load import Loaded, load
from farflung.config.render import digest, render, to_toml

Scalar = str | int | float | bool


class Part(Config):
    text: str = "a"
    maybe: float | None = 1.0
    numbers: tuple[int, ...] = ()
    folder: Path = Path("runs")
    args: dict[str, Scalar] = {}
    several: tuple[dict[str, Scalar], ...] = ()


class Whole(Config):
    seed: int = 0
    is_on: bool = True
    part: Part = Part()


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
number = st.floats(allow_nan=False, allow_infinity=False)
scalar = st.one_of(text, st.integers(-(2**53), 2**53), number, st.booleans())
table = st.dictionaries(st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True), scalar, max_size=3)
parts = st.builds(
    Part,
    text=text,
    maybe=st.one_of(st.none(), number),
    numbers=st.lists(st.integers(-(2**53), 2**53), max_size=3).map(tuple),
    args=table,
    several=st.lists(table, max_size=2).map(tuple),
)
wholes = st.builds(Whole, seed=st.integers(-(2**53), 2**53), is_on=st.booleans(), part=parts)


@given(config=wholes)
def test_rendered_toml_loads_back_to_the_same_config(tmp_path_factory: object, config: Whole) -> None:
    path = Path(tmp_path_factory.mktemp("config")) / "c.toml"  # type: ignore[attr-defined]
    path.write_text(to_toml(config), encoding="utf-8")
    again = load(Whole, path).config
    assert again == config
    assert digest(again) == digest(config)


def test_each_value_is_followed_by_its_source(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("seed = 3\n[part.args]\ndigits = 6\n")
    result: Loaded[Whole] = load(Whole, path, ["--part.maybe", "none"])
    assert render(result).replace(str(tmp_path), "DIR") == (
        "seed = 3      # DIR/c.toml:1\n"
        "is_on = true  # default\n"
        "\n"
        "[part]\n"
        'text = "a"       # default\n'
        'maybe = "none"   # command line\n'
        "numbers = []     # default\n"
        'folder = "runs"  # default\n'
        "several = []     # default\n"
        "\n"
        "[part.args]\n"
        "digits = 6  # DIR/c.toml:3\n"
    )


def test_configs_that_differ_in_one_value_have_different_digests() -> None:
    assert digest(Whole()) == digest(Whole(seed=0))
    assert digest(Whole()) != digest(Whole(seed=1))
    assert digest(Whole()) != digest(Whole(part=Part(args={"a": 1})))
