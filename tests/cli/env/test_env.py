"""`farflung env` from outside: write, test, publish, install, try."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from farflung.cli import main
from farflung.envs.packages.home import VARIABLE
from farflung.model.characters import character_tokenizer
from farflung.model.factory import random_state
from farflung.model.folder import save_folder
from farflung.model.presets import tiny_config


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "home"))


def run(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of `farflung env ...`."""
    code = main.main(["env", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_from_a_new_project_to_an_installed_package(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("new", "count-sheep", capsys=capsys)
    assert (code, "farflung env test ./count-sheep" in out) == (0, True)
    module = Path("count-sheep/src/count_sheep.py").read_text()
    assert len([line for line in module.splitlines() if line.strip()]) <= 36

    code, out, _ = run("publish", "./count-sheep", "--index", "index", capsys=capsys)
    assert (code, "FAILED" in out) == (0, False)
    digest = out.split()[-1]

    code, out, _ = run("install", "count-sheep", "--index", "index", "--digest", digest, capsys=capsys)
    assert code == 0
    assert "in a child without network, files or keys" in out

    code, out, _ = run("list", "--json", capsys=capsys)
    (listed,) = [row for row in json.loads(out) if row["name"] == "count-sheep"]
    assert (listed["version"], listed["origin"]) == ("0.1.0", str(Path("index").absolute()))

    code, out, _ = run("try", "count-sheep", "--answer", "x", "--json", capsys=capsys)
    assert json.loads(out)["grades"][0]["components"] == {"exact": 0.0, "close": 0.0}

    code, out, _ = run("show", "count-sheep", "--env.max_value", "9", "--json", capsys=capsys)
    shown = json.loads(out)
    assert shown["facts"]["digest"] == digest
    assert shown["facts"]["runs"] == "in a child behind walls"
    assert shown["facts"]["tasks"] == "90 train, 10 heldout"
    assert [each["name"] for each in shown["arguments"]] == ["max_value"]

    code, out, _ = run("remove", "count-sheep", capsys=capsys)
    code, _, err = run("try", "count-sheep", "--answer", "x", capsys=capsys)
    assert (code, "unknown environment" in err) == (2, True)
    assert "the folder of that name is ./count-sheep" in err


def test_the_new_project_passes_its_own_tests(capsys: pytest.CaptureFixture[str]) -> None:
    run("new", "count-sheep", capsys=capsys)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(words, cwd="count-sheep", capture_output=True, text=True, check=False)
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout


@pytest.mark.slow
def test_the_new_project_installs_with_pip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("setuptools")
    run("new", "count-sheep", capsys=capsys)
    place = tmp_path / "installed"
    words = [
        "install",
        "-q",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--target",
        str(place),
        "./count-sheep",
    ]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    assert (place / "count_sheep.py").is_file()
    points = next(place.glob("*.dist-info")) / "entry_points.txt"
    assert "count-sheep = count_sheep:environment" in points.read_text()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("sort-digits", '"sort-digits" is taken'),
        ("sort-d1gits", "would be taken for sort-digits"),
        ("Count_Sheep", "lower-case letters"),
        ("../evil", "lower-case letters"),
        ("3-sheep", "begins with a digit"),
    ],
)
def test_a_name_that_no_package_may_have_is_refused(
    name: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run("new", name, capsys=capsys)
    assert (code, sentence in err) == (2, True), err


def test_a_folder_that_is_there_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    Path("count-sheep").mkdir()
    Path("count-sheep/mine.txt").write_text("mine")
    code, _, err = run("new", "count-sheep", capsys=capsys)
    assert (code, "is there already" in err) == (2, True)
    assert [path.name for path in Path("count-sheep").iterdir()] == ["mine.txt"]


def change(old: str, new: str, path: str = "count-sheep/src/count_sheep.py") -> None:
    text = Path(path).read_text()
    assert old in text
    Path(path).write_text(text.replace(old, new))


def test_a_package_that_fails_its_checks_is_not_published_and_a_version_never_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("new", "count-sheep", capsys=capsys)
    run("publish", "./count-sheep", "--index", "index", "--untested", capsys=capsys)
    change("str(left + right)", "str(left + right + 1)")
    code, _, err = run("publish", "./count-sheep", "--index", "index", "--untested", capsys=capsys)
    assert (code, "raise the version" in err) == (2, True)

    change("completion.strip() == task.answer", "int(completion) == int(task.answer)")
    code, out, _ = run("publish", "./count-sheep", "--index", "other", capsys=capsys)
    assert (code, "nothing was published" in out) == (1, True)
    assert "FAILED" in out
    assert not Path("other").exists()


def test_a_project_whose_import_reads_keys_fails_in_its_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # E1
    (tmp_path / "user" / ".ssh").mkdir(parents=True)
    (tmp_path / "user" / ".ssh" / "id_ed25519").write_text("key")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    run("new", "count-sheep", capsys=capsys)
    theft = "from pathlib import Path\n\nKEY = (Path.home() / '.ssh' / 'id_ed25519').read_text()\n\n\n"
    change("class Arguments", f"{theft}class Arguments")
    code, _, err = run("try", "./count-sheep", "--answer", "x", capsys=capsys)
    assert code == 1
    assert "FileNotFoundError" in err
    assert not (tmp_path / "home").exists()


def test_installing_runs_nothing_of_a_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # E1
    run("new", "count-sheep", capsys=capsys)
    mark = tmp_path / "ran"
    change("class Arguments", f"open({str(mark)!r}, 'w')\n\n\nclass Arguments")
    Path("count-sheep/setup.py").write_text(f"open({str(mark)!r}, 'w')\n")
    run("publish", "./count-sheep", "--index", "index", "--untested", capsys=capsys)
    code, _, _ = run("install", "count-sheep", "--index", "index", capsys=capsys)
    run("list", capsys=capsys)
    assert (code, mark.exists()) == (0, False)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("install", "count-goats", "--index", "index"), "has no count-goats; it has count-sheep"),
        (("install", "count-sheep==0.2.0", "--index", "index"), "has no count-sheep 0.2.0; it has 0.1.0"),
        (("install", "count-sheep", "--index", "indx"), "there is no index"),
        (("list", "--index", "indx"), "there is no index"),
        (("install", "../count-sheep", "--index", "index"), "lower-case letters"),
        (("install", "count-sheep", "--index", "index", "--digest", "0" * 64), "not 0000"),
        (("install", "count-sheep", "--index", "index", "--trust", "0" * 64), "you agreed to 0000"),
        (("remove", "count-sheep"), "is not installed"),
        (("test", "./nowhere"), "cannot be used"),
        (("test", "sort-digits", "--tasks", "0"), "--tasks is 0: it must be at least 1"),
        (("try", "sort-digits", "--task", "-1"), "task -1 of the train split"),
        (("try", "sort-digits", "--target-length", "3"), "target length 3"),
        (("show", "sort-digits", "--env.num_digit", "3"), "did you mean num_digits"),
        (("show", "sort-digits", "--trainer.x", "3"), "--env.KEY VALUE"),
        (("list", "--env.x", "3"), "takes no settings"),
        (("try", "sort-digits", "--trust"), "are for project folders"),
        (("test", "sort-digits", "--entry", "x"), "are for project folders"),
        (("show", "./count-sheep", "--entry", "other"), "has no environment other: it has count-sheep"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("new", "count-sheep", capsys=capsys)
    run("publish", "./count-sheep", "--index", "index", "--untested", capsys=capsys)
    code, _, err = run(*words, capsys=capsys)
    assert (code, sentence in err) == (2, True), err


def test_a_requirement_that_is_missing_is_named_and_not_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    run("new", "count-sheep", capsys=capsys)
    change('["farflung"]', '["farflung", "no-such-thing>=2"]', "count-sheep/pyproject.toml")
    run("publish", "./count-sheep", "--index", "index", "--untested", capsys=capsys)
    code, _, err = run("install", "count-sheep", "--index", "index", capsys=capsys)
    assert (code, "needs no-such-thing, which is not installed here" in err) == (2, True)


def test_an_index_that_lies_is_blamed_by_its_own_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("new", "count-sheep", capsys=capsys)
    run("publish", "./count-sheep", "--index", "index", "--untested", capsys=capsys)
    (archive,) = (tmp_path / "index" / "archives").iterdir()
    archive.write_bytes(b"PK\x05\x06" + bytes(18))
    code, _, err = run("install", "count-sheep", "--index", "index", capsys=capsys)
    assert code == 2
    assert f"{tmp_path / 'index'} is faulty, and nothing was taken from it" in err


def test_every_turn_of_an_episode_is_asked_and_each_agent_graded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run("try", "take-away", "--answer", "1", "--json", capsys=capsys)
    played = json.loads(out)
    assert (code, [grade["agent"] for grade in played["grades"]]) == (0, [0, 1])
    assert len(played["turns"]) > 2
    monkeypatch.setattr(sys, "stdin", io.StringIO("148299"))
    code, out, _ = run("try", "sort-digits", capsys=capsys)
    assert out.startswith("user> 148299>\n")


def test_a_model_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = character_tokenizer("0123456789>")
    config = tiny_config(tokenizer, hidden_size=32, num_heads=2)
    save_folder(tmp_path / "model", config, random_state(config, 0), tokenizer.files)
    words = ["try", "sort-digits", "--model", "model", "--max-tokens", "8", "--json"]
    code, out, _ = run(*words, capsys=capsys)
    assert (code, len(json.loads(out)["turns"])) == (0, 1)
    code, out, _ = run("test", "sort-digits", "--model", "model", "--max-prompt-tokens", "9", "--json", capsys=capsys)
    assert (code, json.loads(out)["passed"]) == (0, True)


def test_the_table_of_checks_is_there_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("test", "reverse-text", "--max-completion-tokens", "3", "--json", capsys=capsys)
    told = json.loads(out)
    assert (code, told["passed"]) == (1, False)
    (failure,) = [check for check in told["environments"]["reverse-text"] if check["outcome"] == "failed"]
    assert failure["name"] == "template"
