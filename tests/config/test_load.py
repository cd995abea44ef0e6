"""Loading: precedence, sources, types, and one clear sentence for each kind of bad input."""

# ruff: noqa: E501 (sentences are asserted whole)

from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field, model_validator

from farflung.config.base import Config
from farflung.config.load import Loaded, load
from farflung.errors import UserError


class Optimizer(Config):
    lr: float = Field(1e-6, ge=0, description="Learning rate.")
    betas: tuple[float, ...] = (0.9, 0.95)
    kind: Literal["adamw", "sgd"] = "adamw"
    clip: float | None = 1.0
    name: str = ""


class Pool(Config):
    group_size: int = Field(8, ge=2, description="Rollouts per task.")
    args: dict[str, str | int | float | bool] = {}
    folder: Path = Path("runs")
    is_open: bool = True

    @model_validator(mode="after")
    def _rule(self) -> "Pool":
        if self.group_size == 13:
            raise ValueError("group_size is 13: use 12 or 14")
        return self


class Whole(Config):
    seed: int = 0
    pool: Pool = Pool()
    optimizer: Optimizer = Optimizer()


class Needs(Config):
    name: str = Field(description="What it is called.")


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def loaded(folder: Path, text: str, *overrides: str) -> Loaded[Whole]:
    return load(Whole, write(folder, text), overrides)


def complaint(folder: Path, text: str, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        loaded(folder, text, *overrides)
    return str(caught.value).replace(str(folder), "DIR")


def test_no_file_and_no_overrides_give_the_defaults() -> None:
    result = load(Whole, None)
    assert result.config == Whole()
    assert set(result.sources.values()) == {"default"}


def test_the_command_line_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    result = loaded(tmp_path, "[optimizer]\nlr = 0.5\nclip = 2.0\n", "--optimizer.lr", "0.25")
    assert (result.config.optimizer.lr, result.config.optimizer.clip, result.config.pool.group_size) == (0.25, 2.0, 8)
    assert result.sources["optimizer.lr"] == "command line"
    assert result.sources["optimizer.clip"] == f"{tmp_path}/run.toml:3"
    assert result.sources["pool.group_size"] == "default"


def test_sources_name_the_line_also_of_inline_tables_dotted_keys_and_lists_over_several_lines(tmp_path: Path) -> None:
    text = "optimizer.betas = [\n  0.5,\n  0.6,\n]\npool = {group_size = 4, args = {digits = 6}}\n"
    result = loaded(tmp_path, text)
    where = {key: source.rpartition(":")[2] for key, source in result.sources.items() if source != "default"}
    assert where == {"optimizer.betas": "1", "pool.group_size": "5", "pool.args.digits": "5"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--optimizer.lr", "1e-3"), Whole(optimizer=Optimizer(lr=1e-3))),
        (("--optimizer.lr=1",), Whole(optimizer=Optimizer(lr=1.0))),
        (("--optimizer.betas", "[0.1, 0.2]"), Whole(optimizer=Optimizer(betas=(0.1, 0.2)))),
        (("--optimizer.clip", "none"), Whole(optimizer=Optimizer(clip=None))),
        (("--optimizer.name", "none"), Whole(optimizer=Optimizer(name="none"))),
        (("--optimizer.name", "12"), Whole(optimizer=Optimizer(name="12"))),
        (("--optimizer.name=a=b",), Whole(optimizer=Optimizer(name="a=b"))),
        (("--optimizer.kind", "sgd"), Whole(optimizer=Optimizer(kind="sgd"))),
        (("--pool.folder", "/x/y"), Whole(pool=Pool(folder=Path("/x/y")))),
        (("--pool.is-open", "false"), Whole(pool=Pool(is_open=False))),
        (("--pool.args", '{"digits": 6}'), Whole(pool=Pool(args={"digits": 6}))),
        (("--pool.args.digits", "6", "--pool.args.name", "x y"), Whole(pool=Pool(args={"digits": 6, "name": "x y"}))),
        (("--seed", "-3", "--seed", "4"), Whole(seed=4)),
    ],
)
def test_overrides_are_read_as_the_field_asks(arguments: tuple[str, ...], expected: Whole) -> None:
    assert load(Whole, None, arguments).config == expected


def test_an_override_adds_to_a_table_of_the_file_and_leaves_the_file_alone(tmp_path: Path) -> None:
    result = loaded(tmp_path, "[pool.args]\na = 1\nb = 2\n", "--pool.args.b", "3")
    assert result.config.pool.args == {"a": 1, "b": 3}
    assert result.sources["pool.args.a"].endswith(":2")
    assert result.sources["pool.args.b"] == "command line"


def test_none_is_written_as_a_word_in_toml(tmp_path: Path) -> None:
    result = loaded(tmp_path, '[optimizer]\nclip = "none"\nname = "none"\n')
    assert result.config.optimizer.clip is None
    assert result.config.optimizer.name == "none"


@pytest.mark.parametrize(
    ("text", "arguments", "sentence"),
    [
        (
            "[optimizer]\n\nlr = -1.0\n",
            (),
            "optimizer.lr is -1.0 (DIR/run.toml:3); it must be at least 0, for example 1e-06 (the default)",
        ),
        (
            "",
            ("--pool.group_size", "1"),
            "pool.group_size is 1 (command line); it must be at least 2, for example 8 (the default)",
        ),
        (
            '[pool]\ngroup_size = "8"\n',
            (),
            'pool.group_size is "8" (DIR/run.toml:2); it must be a whole number, for example 8 (the default)',
        ),
        (
            "",
            ("--pool.group_size", "many"),
            'pool.group_size is "many" (command line); it must be a whole number, for example 8 (the default)',
        ),
        ("seed = true\n", (), "seed is true (DIR/run.toml:1); it must be a whole number, for example 0 (the default)"),
        ("seed = 8.5\n", (), "seed is 8.5 (DIR/run.toml:1); it must be a whole number, for example 0 (the default)"),
        (
            "[optimizer]\nlr = nan\n",
            (),
            "optimizer.lr is NaN (DIR/run.toml:2); it must be a finite number, for example 1e-06 (the default)",
        ),
        (
            "[optimizer]\nkind = 'adam'\n",
            (),
            "optimizer.kind is \"adam\" (DIR/run.toml:2); it must be one of 'adamw' or 'sgd', for example \"adamw\" (the default)",
        ),
        (
            "[pool]\nargs = {a = [1]}\n",
            (),
            "pool.args.a is [1] (DIR/run.toml:2); it must be text in quotes or a whole number or a number or true or false",
        ),
        ("pool = 3\n", (), "pool is 3 (DIR/run.toml:1); it must be a section"),
        ("[pool]\ngroup_size = 13\n", (), "[pool] group_size is 13: use 12 or 14"),
        (
            "[pool]\ngroup_sise = 4\n",
            (),
            "unknown setting pool.group_sise (DIR/run.toml:2); did you mean pool.group_size?",
        ),
        ("[pol]\nx = 4\n", (), "unknown setting pol (DIR/run.toml:1); did you mean pool?"),
        ("lr = 4\n", (), "unknown setting lr (DIR/run.toml:1); did you mean optimizer.lr?"),
        (
            "[optimizer]\nlearning_rate = 4\n",
            (),
            "unknown setting optimizer.learning_rate (DIR/run.toml:2); did you mean optimizer.lr?",
        ),
        (
            "[pool]\nzzz = 4\n",
            (),
            "unknown setting pool.zzz (DIR/run.toml:2); known there: group_size, args, folder, is_open",
        ),
        ("", ("--pool.grup_size", "4"), "unknown setting --pool.grup_size on the command line; did you mean --pool.group_size?"),
        ("", ("--zzz", "4"), "unknown setting --zzz on the command line; sections are seed, pool, optimizer"),
        (
            "",
            ("--pool", "4"),
            "--pool is a section, not a setting; it holds --pool.group_size, --pool.args, --pool.folder, --pool.is_open",
        ),
        ("", ("--pool.args.a.b", "4"), "unknown setting --pool.args.a.b on the command line; did you mean --pool.args?"),
        ("", ("--optimizer.lr",), "--optimizer.lr has no value: write --optimizer.lr VALUE (Learning rate)"),
        ("", ("--optimizer.lr", "--seed", "1"), "--optimizer.lr has no value: write --optimizer.lr VALUE (Learning rate)"),
        ("", ("lr=3",), "unexpected argument 'lr=3': settings are changed with --section.key value"),
        (
            "[pool]\ngroup_size =\n",
            (),
            "DIR/run.toml:2 is not valid TOML: invalid value at column 13: group_size =",
        ),
        (
            "seed = 1\nseed = 2\n",
            (),
            "DIR/run.toml:2 is not valid TOML: cannot overwrite a value at column 9: seed = 2",
        ),
    ],
)  # fmt: skip
def test_bad_input_gives_one_sentence_with_place_value_rule_and_fix(
    tmp_path: Path, text: str, arguments: tuple[str, ...], sentence: str
) -> None:
    assert complaint(tmp_path, text, *arguments) == sentence


def test_all_faults_are_listed_at_once(tmp_path: Path) -> None:
    text = complaint(tmp_path, "sead = 1\n[pool]\ngroup_size = 1\n", "--optimizer.lr", "-1")
    assert text.splitlines() == [
        "3 settings are wrong:",
        "  - pool.group_size is 1 (DIR/run.toml:3); it must be at least 2, for example 8 (the default)",
        "  - optimizer.lr is -1 (command line); it must be at least 0, for example 1e-06 (the default)",
        "  - unknown setting sead (DIR/run.toml:1); did you mean seed?",
    ]


def test_a_missing_setting_says_where_to_write_it() -> None:
    with pytest.raises(UserError) as caught:
        load(Needs, None)
    assert str(caught.value) == "name is missing (What it is called); write name = ..., or --name on the command line"


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    write(tmp_path, "")
    for wrong, expected in (
        ("rum.toml", "there is no file DIR/rum.toml; did you mean DIR/run.toml?"),
        ("something-else", "there is no file DIR/something-else; DIR holds run.toml"),
        ("no/run.toml", "there is no file DIR/no/run.toml: its folder DIR/no does not exist"),
        (".", "DIR is a folder, not a TOML file; DIR holds run.toml"),
    ):
        with pytest.raises(UserError) as caught:
            load(Whole, tmp_path / wrong)
        assert str(caught.value).replace(str(tmp_path), "DIR") == expected


def test_a_file_that_is_not_text_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\x00\xff\xfe")
    with pytest.raises(UserError, match=r"is not a text file in UTF-8 \(byte 1\)"):
        load(Whole, path)


def test_keys_in_strings_over_several_lines_are_not_mistaken_for_settings(tmp_path: Path) -> None:
    text = '[optimizer]\nname = """\n[pool]\nseed = 3\n"""\n[pool]\ngroup_size = 4\n'
    result = loaded(tmp_path, text)
    assert result.sources["pool.group_size"].endswith(":7")
    assert result.sources["seed"] == "default"
