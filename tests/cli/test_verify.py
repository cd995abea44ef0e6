"""`farflung verify` and `farflung calibrate`: figures, thresholds and exit codes; wrong input in a sentence."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from farflung.cli import main
from farflung.engine.base import SamplingParams
from farflung.envs.registry import load_environment
from farflung.model.characters import character_tokenizer
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import load_folder, save_folder
from farflung.model.tokenizer import Tokenizer
from farflung.model.vocabulary import end_of_sequence, never_drawn
from farflung.validator.calibrate import SEED, Bench
from farflung.wire.rollout import Rollout
from farflung.wire.rollout_file import write_rollouts

ENV = "sort-digits"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    alphabet = load_environment(ENV, 0, {}).alphabet()
    assert alphabet is not None
    tokenizer = character_tokenizer(alphabet)
    config = tiny_config(tokenizer, hidden_size=32, num_heads=2, intermediate_size=64, num_layers=2)
    save_folder(tmp_path / "m", config, random_state(config, 0, std=0.3), tokenizer.files)
    return tmp_path / "m"


def rollouts(model: Path) -> list[Rollout]:
    loaded = load_folder(model)
    tokenizer = Tokenizer.from_files(loaded.tokenizer_files)
    params = SamplingParams(
        temperature=1.0,
        max_completion_tokens=40,
        eos_token_ids=end_of_sequence(tokenizer, loaded.config),
        reserved_token_ids=never_drawn(tokenizer, loaded.config),
    )
    prompts = [tokenizer.encode("123>"), tokenizer.encode("980>")]
    bench = Bench(config=loaded.config, state=loaded.state, prompts=prompts, params=params, num_samples=3)
    return [replace(row, env="sort-digits", task_id="train/0") for row in bench.sample()]


def file_of(rows: list[Rollout], folder: Path) -> str:
    path = folder / "r.parquet"
    path.write_bytes(write_rollouts(rows, "a" * 64))
    return str(path)


def verify(model: Path, file: str, *options: str, seed: str = SEED.hex()) -> int:
    return main.main(["verify", file, "--model", str(model), "--seed", seed, *options])


def test_honest_work_is_accepted_with_every_figure(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(model, file_of(rollouts(model), model)) == 0
    told = capsys.readouterr().out
    assert "accepted" in told
    assert "6 rollouts" in told
    for name in ("activation chunk", "mean margin", "logprob error", "likelier than draws"):
        assert name in told


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda row: replace(row, proof=b"\x05" * len(row.proof)), "activations"),
        (lambda row: replace(row, logprobs=row.logprobs * 3), "logprobs"),
    ],
)
def test_a_cheat_is_named_with_exit_code_1(
    model: Path, capsys: pytest.CaptureFixture[str], change: object, reason: str
) -> None:
    assert callable(change)
    assert verify(model, file_of([change(row) for row in rollouts(model)], model), "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["is_accepted"], told["reason"]) == (False, reason)


@pytest.mark.parametrize("token", [-1, 2**31 - 1])
def test_w20_a_token_that_is_none_is_said_in_a_sentence(
    model: Path, capsys: pytest.CaptureFixture[str], token: int
) -> None:
    rows = rollouts(model)
    rows[0].completion_tokens[0] = token
    assert verify(model, file_of(rows, model)) not in (0, 1)
    assert f"the file has token {token}" in capsys.readouterr().err


def test_w10_another_seed_is_another_draw(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = bytes(32)
    assert verify(model, file_of(rollouts(model), model), "--json", seed=other.hex()) == 1
    assert json.loads(capsys.readouterr().out)["reason"] == "activations", "commitments are made with the seed as well"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["verify", "none.parquet", "--model", "m", "--seed", "00" * 32], "cannot be read"),
        (["verify", "m/config.json", "--model", "m", "--seed", "00" * 32], "is not a rollout file"),
        (["verify", "ok.parquet", "--model", "m", "--seed", "zz"], "must be the draw seed"),
        (["verify", "ok.parquet", "--model", "nowhere", "--seed", "00" * 32], "nowhere"),
        (["verify", "ok.parquet", "--model", "m", "--seed", "00" * 32, "--thresholds", "m/config.json"], "calibrate"),
        (["verify", "bare.parquet", "--model", "m", "--seed", "00" * 32], "has a proof of 0 bytes"),
    ],
)
def test_wrong_input_is_said_in_a_sentence(
    model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    rows = rollouts(model)
    Path("ok.parquet").write_bytes(write_rollouts(rows, "a" * 64))
    Path("bare.parquet").write_bytes(write_rollouts([replace(row, proof=b"") for row in rows], "a" * 64))
    assert main.main(arguments) not in (0, 1)
    told = capsys.readouterr().err
    assert words in told
    assert "Traceback" not in told


def test_calibration_writes_thresholds_that_verify_takes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main.main(
        ["calibrate", str(model), "--env", ENV, "--submissions", "3", "--rollouts", "4", "--max-tokens", "30"]
    )
    told = capsys.readouterr().out
    assert code in (0, 1)
    assert "honest submissions rejected" in told
    report = json.loads(Path("thresholds.json").read_text())
    assert {spread["name"] for spread in report["spreads"] if spread["is_honest"]} == {
        "itself",
        "in small batches",
        "with bfloat16 activations",
    }
    assert len(report["spreads"]) >= 10
    assert Path("thresholds.png").stat().st_size > 10_000
    assert report["separations"]["activation_submission"]["honest_max"] > 0
    assert verify(model, file_of(rollouts(model), model), "--thresholds", "thresholds.json") == 0
