"""`farflung eval --harness`: a program with the official client, end to end."""

import json
import sys
from pathlib import Path

import pytest

from farflung.cli import main
from farflung.model.characters import character_tokenizer
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import save_folder

pytest.importorskip("openai")

AGENT = """
import json, os, sys
from openai import OpenAI

task = json.load(sys.stdin)
answer = OpenAI().chat.completions.create(model=os.environ["FARFLUNG_MODEL"], messages=task["messages"])
if "--grade" in sys.argv:
    print("thinking of it")
    print(json.dumps({"reward": 0.25 + 0.5 * task["sample"], "correct": task["sample"]}))
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text(AGENT)
    tokenizer = character_tokenizer("0123456789>")
    config = tiny_config(tokenizer, hidden_size=8, num_heads=2, intermediate_size=8, num_layers=1)
    save_folder(tmp_path / "m", config, random_state(config, 0), tokenizer.files)
    return tmp_path / "m"


def evaluate(model: Path, harness: str, *options: str) -> int:
    words = f"eval {model} --env sort-digits --env.num_digits=2 --out out --samples 2 --max-tokens 4 --json".split()
    return main.main([*words, "--harness", harness, *options])


def lines(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path("out", name).read_text().splitlines()]


def test_a_harness_is_asked_for_each_attempt_and_its_rewards_count(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"{sys.executable} agent.py --grade"
    assert evaluate(model, command, "--tasks", "1") == 0
    assert evaluate(model, command, "--tasks", "2") == 0, "it goes on where it was"
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["num_tasks"], result["num_samples"], result["mean_reward"]) == (2, 4, 0.5)
    assert result["avg@2"]["value"] == 0.5
    conversations = lines("conversations.jsonl")
    assert [(row["task"], row["sample"], row["reward"]) for row in conversations] == [
        (0, 0, 0.25),
        (0, 1, 0.75),
        (1, 0, 0.25),
        (1, 1, 0.75),
    ]
    assert all(len(row["conversations"]) == 1 for row in conversations)  # type: ignore[arg-type]


def test_the_harness_of_the_documentation_runs(model: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text()
    Path("documented.py").write_text(text.split("```python\n")[1].split("```")[0])
    assert evaluate(model, f"{sys.executable} documented.py", "--tasks", "1") == 0
    _, *rows = lines("samples.jsonl")
    assert {row["reward"] for row in rows} <= {0.0, 1.0}


def test_without_a_reward_the_last_answer_is_graded(model: Path) -> None:
    assert evaluate(model, f"{sys.executable} agent.py", "--tasks", "1") == 0
    _, *rows = lines("samples.jsonl")
    assert [row["reward"] is not None and row["num_tokens"] for row in rows] == [row["num_tokens"] for row in rows]


@pytest.mark.parametrize(
    ("harness", "options", "sentence"),
    [
        (" ", [], "--harness is empty"),
        ("", [], "--harness is empty"),
        ("python 'agent.py", [], "cannot be split into words: no closing quotation"),
        ("not-here --x", [], "--harness not-here cannot be started"),
        (f"{sys.executable} -c 'print(\"reward = 1\")'", [], "never asked the model"),
        ("true", ["--temperature", "0.5"], "--temperature and --harness do not go together"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    model: Path, harness: str, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(model, harness, "--tasks", "1", *options) != 0
    assert sentence in capsys.readouterr().err
