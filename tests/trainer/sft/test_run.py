"""Fine-tuning: it learns, it resumes without a trace, it refuses what does not fit."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from farflung.cli import main
from farflung.errors import UserError
from farflung.model.adapter_files import load_adapter_folder
from farflung.model.characters import character_tokenizer
from farflung.model.decoder import Decoder
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import LoadedModel, load_folder, save_folder
from farflung.model.layout import SequenceLayout
from farflung.model.lora import merge
from farflung.model.weights import load_hf_state, publishable_state
from farflung.rl.types import TrainingSample
from farflung.trainer.config import OptimizerConfig
from farflung.trainer.sft.config import SftConfig
from farflung.trainer.sft.data import Example
from farflung.trainer.sft.encode import encode_examples
from farflung.trainer.sft.run import Measured, mean_loss, run_sft, split_heldout
from farflung.trainer.sft.state import load_state

TOKENIZER = character_tokenizer("abcdefgh>")
CONFIG = tiny_config(TOKENIZER, hidden_size=16, num_heads=2, intermediate_size=16, num_layers=1)


def model() -> LoadedModel:
    return LoadedModel(config=CONFIG, state=random_state(CONFIG, 0, std=0.1), tokenizer_files=TOKENIZER.files)


def samples(count: int = 40) -> list[TrainingSample]:
    """The answer is the question's letter, doubled."""
    examples = [
        Example(messages=({"role": "user", "content": c}, {"role": "assistant", "content": c * 2}))
        for c in ("abcdefgh" * count)[:count]
    ]
    return encode_examples(examples, TOKENIZER, max_tokens=32)[0]


def config(**changes: object) -> SftConfig:
    optimizer = OptimizerConfig(lr=1e-2, warmup_steps=0)
    settings = {"epochs": 4, "batch_size": 8, "heldout_share": 0.2, "eval_every_steps": 4, "checkpoint_every_steps": 3}
    return SftConfig(**{"optimizer": optimizer, **settings, **changes})  # type: ignore[arg-type]


def fit(out: Path, settings: SftConfig | None = None, *, until: int = 10**9) -> list[Measured]:
    told: list[Measured] = []
    run_sft(
        model(), samples(), settings or config(), out,
        report=told.append, should_stop=lambda: bool(told) and told[-1].step >= until,
    )  # fmt: skip
    return told


def weights(out: Path) -> dict[str, Tensor]:
    """What a finished run leaves: its model, and its adapter if it has one."""
    files = [*(out / "model").glob("*.safetensors"), *(out / "adapter").glob("*.safetensors")]
    return {f"{path.parent.name}/{name}": tensor for path in files for name, tensor in load_file(path).items()}


def test_the_held_out_loss_falls_and_the_model_is_left(tmp_path: Path) -> None:
    told = fit(tmp_path, config(epochs=20))
    measured = [each.heldout_loss for each in told if each.heldout_loss is not None]
    assert measured[-1] < measured[0] / 3
    assert told[-1].step == told[-1].num_steps == 20 * 4
    assert load_folder(tmp_path / "model").config == CONFIG
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 81))


def test_a_finished_run_leaves_no_state_behind_and_the_same_command_leaves_it_alone(tmp_path: Path) -> None:
    fit(tmp_path)
    before = weights(tmp_path)
    assert before
    assert (tmp_path / "state.safetensors").stat().st_size < 1000
    assert fit(tmp_path) == []
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(tmp_path).items())


@pytest.mark.parametrize("until", [1, 5, 9])
def test_stopped_and_started_again_it_ends_bit_for_bit_as_unbroken(tmp_path: Path, until: int) -> None:
    fit(tmp_path / "whole")
    fit(tmp_path / "cut", until=until)
    fit(tmp_path / "cut")
    whole, cut = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_an_adapter_learns_resumes_and_is_left_beside_the_merged_model(tmp_path: Path) -> None:
    settings = config(epochs=20, lora={"rank": 4})
    told = fit(tmp_path / "whole", settings)
    measured = [each.heldout_loss for each in told if each.heldout_loss is not None]
    assert measured[-1] < measured[0] - 0.1
    fit(tmp_path / "cut", settings, until=7)
    fit(tmp_path / "cut", settings)
    whole, cut = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert (
        {name for name in whole if "lora_" in name} == {name for name in whole if name.startswith("adapter/")} != set()
    )
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    adapter = load_adapter_folder(tmp_path / "whole" / "adapter", CONFIG)
    merged = merge(publishable_state(model().state), adapter.state, adapter.spec)
    left = load_folder(tmp_path / "whole" / "model").state
    assert all(torch.equal(left[name], merged[name]) for name in merged)


def test_how_it_is_cut_into_passes_does_not_matter(tmp_path: Path) -> None:
    one = fit(tmp_path / "a", config(epochs=1))
    many = fit(tmp_path / "b", config(epochs=1, micro_batch_tokens=9))
    assert [each.loss for each in many] == pytest.approx([each.loss for each in one], rel=1e-4)


def test_the_first_loss_is_the_mean_over_the_assistants_tokens(tmp_path: Path) -> None:
    settings = config(batch_size=100, heldout_share=0.0, epochs=1)
    (told,) = fit(tmp_path, settings)
    decoder = Decoder(CONFIG)
    load_hf_state(decoder, {name: tensor.bfloat16().float() for name, tensor in model().state.items()})
    total, count = 0.0, 0
    for sample in samples():
        tokens = torch.from_numpy(sample.tokens).long()
        logits = decoder(tokens, SequenceLayout.from_lengths([len(tokens)])) @ decoder.lm_head_weight.T
        logprobs = logits[:-1].log_softmax(-1).gather(-1, tokens[1:, None])[:, 0]
        total -= float(logprobs[sample.num_prompt_tokens - 1 :].sum().detach())
        count += sample.num_completion_tokens
    assert told.loss == pytest.approx(total / count, rel=1e-5)


def test_held_out_examples_are_never_trained_on() -> None:
    train, heldout = split_heldout(samples(), config())
    assert (len(train), len(heldout)) == (32, 8)
    assert not {sample.group for sample in train} & {sample.group for sample in heldout}


def test_learning_rate_zero_changes_nothing(tmp_path: Path) -> None:
    fit(tmp_path, config(optimizer=OptimizerConfig(lr=0.0), epochs=1))
    saved = weights(tmp_path)
    assert all(torch.equal(saved[f"model/{name}"], tensor.bfloat16()) for name, tensor in model().state.items())


def test_another_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    fit(tmp_path, until=3)
    with pytest.raises(UserError, match="other examples, settings or weights"):
        fit(tmp_path, config(seed=1))


def test_nothing_to_train_on_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none is left"):
        run_sft(model(), [], config(), tmp_path, report=print, should_stop=lambda: False)


def test_mean_loss_does_not_depend_on_packing() -> None:
    from farflung.trainer.policy import Policy

    policy = Policy(CONFIG, model().state, OptimizerConfig())
    assert mean_loss(policy, samples(), 9) == pytest.approx(mean_loss(policy, samples(), 1000), rel=1e-6)


def _command(tmp_path: Path, name: str, *settings: str) -> list[str]:
    return ["sft", str(tmp_path / "m"), str(tmp_path / "d.jsonl"), "--out", str(tmp_path / name),
            "--sft.optimizer.lr", "1e-2", "--sft.checkpoint_every_steps", "5", *settings]  # fmt: skip


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    save_folder(tmp_path / "m", CONFIG, model().state, TOKENIZER.files, dtype=torch.float32)
    rows = [{"prompt": c, "completion": c * 2} for c in "abcdefgh" * 8]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_killed_it_goes_on_to_the_same_weights(inputs: Path) -> None:
    long = ("--sft.epochs", "30")
    assert main.main(_command(inputs, "whole", *long)) == 0
    words = [sys.executable, "-m", "farflung.cli.main", *_command(inputs, "cut", *long)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while load_state_or_none(inputs / "cut") is None and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    state = load_state(inputs / "cut")
    assert state is not None
    assert 0 < state[0].step < 120
    assert main.main(_command(inputs, "cut", *long)) == 0
    whole, cut = weights(inputs / "whole"), weights(inputs / "cut")
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def load_state_or_none(folder: Path) -> object:
    return (folder / "state.safetensors").is_file() or None


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["--sft.epochs", "0"], "epochs"),
        (["--sft.max_tokens", "9000"], "must fit into one forward pass"),
        (["--trainer.lr", "1"], "trainer"),
    ],
)
def test_wrong_settings_are_named(
    inputs: Path, settings: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(_command(inputs, "o", *settings)) == 2
    assert sentence in capsys.readouterr().err
