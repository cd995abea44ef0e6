"""Models that transformers runs behind the decoder's interface: the numbers that it gives by itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from farflung.errors import OurFault, UserError
from farflung.model.any_config import read_config
from farflung.model.build import build_decoder
from farflung.model.cells import Prefixes
from farflung.model.config import ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.folder import load_folder, save_folder
from farflung.model.foreign.config import ForeignConfig
from farflung.model.foreign.decoder import ForeignDecoder
from farflung.model.layout import SequenceLayout
from farflung.model.weights import load_hf_state, state_to_hf

transformers = pytest.importorskip("transformers")

from foreign_models import RUNNABLE, VOCABULARY, edit_config, library_model, save  # noqa: E402 - needs transformers

_LENGTHS = [3, 40, 11, 40]


@pytest.fixture(autouse=True)
def _float32() -> Iterator[None]:
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(previous)


def _tokens(lengths: list[int] = _LENGTHS) -> Tensor:
    return torch.randint(0, VOCABULARY, (sum(lengths),), generator=torch.Generator().manual_seed(0))


def _loaded(folder: Path) -> ForeignDecoder:
    model = load_folder(folder)
    decoder = build_decoder(model.config)
    assert isinstance(decoder, ForeignDecoder)
    load_hf_state(decoder, model.state)
    return decoder


def _logits(decoder: ForeignDecoder, tokens: Tensor, layout: SequenceLayout, rows: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        return decoder(tokens, layout, rows) @ decoder.lm_head_weight.T


@pytest.mark.parametrize("model_type", RUNNABLE)
def test_every_architecture_gives_its_own_logits_from_its_folder(model_type: str, tmp_path: Path) -> None:
    theirs = library_model(model_type)
    decoder = _loaded(save(theirs, tmp_path / "m"))
    tokens = _tokens()
    with torch.no_grad():
        expected = torch.cat([theirs(part[None]).logits[0] for part in tokens.split(_LENGTHS)])
    assert expected.std() > 0.02
    given = _logits(decoder, tokens, SequenceLayout.from_lengths(_LENGTHS))
    torch.testing.assert_close(given, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("model_type", RUNNABLE)
def test_a_shared_prompt_and_wanted_rows_give_the_states_of_whole_documents(model_type: str, tmp_path: Path) -> None:
    """Three documents: a whole one, one that continues its first 5 tokens, and one that is all prefix but a token."""
    decoder = _loaded(save(library_model(model_type), tmp_path / "m"))
    tokens = _tokens([9, 4, 1])
    first, second, third = tokens.split([9, 4, 1])
    prefixes = Prefixes(starts_D=np.array([0, 0, 0]), lengths_D=np.array([0, 5, 9]))
    layout = SequenceLayout.from_lengths([9, 4, 1], prefixes=prefixes)
    whole = torch.cat((first, first[:5], second, first, third))
    expected = _logits(decoder, whole, SequenceLayout.from_lengths([9, 9, 10]))
    rows = torch.tensor([8, 9, 12, 13])
    given = _logits(decoder, tokens, layout, rows)
    torch.testing.assert_close(given, expected[[8, 14, 17, 27]], rtol=0, atol=2e-5)


@pytest.mark.parametrize("model_type", ["phi", "gpt2", "qwen3_moe"])
def test_the_gradient_is_that_of_the_model_itself(model_type: str, tmp_path: Path) -> None:
    theirs = library_model(model_type)
    decoder = _loaded(save(theirs, tmp_path / "m"))
    tokens = _tokens()
    (decoder(tokens, SequenceLayout.from_lengths(_LENGTHS)) @ decoder.lm_head_weight.T).square().mean().backward()
    torch.cat([theirs(part[None]).logits[0] for part in tokens.split(_LENGTHS)]).square().mean().backward()
    expected = dict(theirs.named_parameters())
    for name, tensor in decoder.tensors.items():
        torch.testing.assert_close(tensor.grad, expected[name].grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("model_type", RUNNABLE)
def test_a_model_that_we_save_is_read_by_us_and_by_transformers(model_type: str, tmp_path: Path) -> None:
    theirs = library_model(model_type)
    decoder = _loaded(save(theirs, tmp_path / "m"))
    loaded = load_folder(tmp_path / "m")
    save_folder(tmp_path / "ours", loaded.config, state_to_hf(decoder), loaded.tokenizer_files, dtype=torch.float32)
    again = load_folder(tmp_path / "ours")
    assert again.config == loaded.config
    assert all(torch.equal(again.state[name], tensor) for name, tensor in loaded.state.items())
    reread = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.float32)
    for name, tensor in reread.named_parameters():
        assert torch.equal(tensor, dict(theirs.named_parameters())[name]), name


def test_experts_lie_in_files_as_other_programs_expect_them(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    loaded = load_folder(save(library_model("qwen3_moe"), tmp_path / "m"))
    save_folder(tmp_path / "ours", loaded.config, loaded.state, loaded.tokenizer_files)
    theirs, ours = (load_file(tmp_path / name / "model.safetensors").keys() for name in ("m", "ours"))
    assert ours == theirs
    assert "model.layers.0.mlp.experts.3.up_proj.weight" in ours


def test_what_the_own_decoder_has_it_runs_itself(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4
    )
    save(transformers.LlamaForCausalLM(config), tmp_path / "m")
    assert isinstance(load_folder(tmp_path / "m").config, ModelConfig)
    edit_config(tmp_path / "m", mlp_bias=True)
    raw_config = read_config(json.loads((tmp_path / "m" / "config.json").read_text()))
    assert isinstance(raw_config, ForeignConfig)
    assert "mlp_bias" in raw_config.reason


def test_an_unusual_llama_gives_the_logits_of_the_own_decoder_when_its_addition_is_zero(tmp_path: Path) -> None:
    """The same Llama with biases in the MLP, which are 0: two implementations of the same numbers."""
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 96,
    }  # fmt: skip
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, mlp_bias=True))
    foreign = _loaded(save(theirs, tmp_path / "m"))
    state = {name: tensor for name, tensor in theirs.state_dict().items() if not name.endswith("bias")}
    plain = transformers.LlamaConfig(**sizes, architectures=["LlamaForCausalLM"])
    own = Decoder(ModelConfig.from_hf(plain.to_dict()))
    load_hf_state(own, state)
    layout, tokens = SequenceLayout.from_lengths(_LENGTHS), _tokens()
    with torch.no_grad():
        torch.testing.assert_close(foreign(tokens, layout), own(tokens, layout), rtol=0, atol=1e-5)


def test_a_model_that_caps_its_logits_is_refused(tmp_path: Path) -> None:
    model = load_folder(save(library_model("gemma2"), tmp_path / "m"))
    with pytest.raises(UserError, match="changes its logits after the head"):
        build_decoder(model.config)


def test_the_warning_comes_once_and_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from farflung.model.foreign import decoder

    decoder._warn.cache_clear()
    config = load_folder(save(library_model("phi"), tmp_path / "m")).config
    for _ in range(2):
        build_decoder(config)
    (record,) = [record for record in caplog.records if "run by transformers" in record.message]
    assert "PhiForCausalLM" in record.message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"auto_map": {"AutoModelForCausalLM": "modeling.Model"}}, "brings its own code"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"architectures": ["PhiForTokenClassification"]}, "causal language model"),
        ({"architectures": ["GPTNeoXForCausalLM"]}, "transformers has PhiForCausalLM"),
        ({"model_type": "frobnicator"}, "cannot run a PhiForCausalLM"),
        ({"model_type": 3}, "model_type is 3"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000"),
        ({"vocab_size": 10**9}, "vocab_size is 1000000000"),
        ({"hidden_size": 40}, "do not belong together"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    save(library_model("phi"), tmp_path / "m")
    edit_config(tmp_path / "m", **changes)
    with pytest.raises(UserError, match=words):
        load_folder(tmp_path / "m")


def test_settings_that_could_fetch_code_do_not_reach_transformers(tmp_path: Path) -> None:
    save(library_model("phi"), tmp_path / "m")
    edit_config(tmp_path / "m", attn_implementation="kernels-community/flash-attn", use_kernels=True)
    config = load_folder(tmp_path / "m").config
    assert not {"attn_implementation", "use_kernels"} & config.to_hf().keys()
    decoder = build_decoder(config)
    assert isinstance(decoder, ForeignDecoder)
    assert decoder.model.config._attn_implementation in ("sdpa", "eager")


def test_missing_and_strange_tensors_are_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = save(library_model("phi"), tmp_path / "m")
    state = load_file(folder / "model.safetensors")
    state["stranger"] = state.pop("lm_head.weight")
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"lm_head\.weight"):
        load_folder(folder)


def test_half_precision_on_a_cpu_is_refused(tmp_path: Path) -> None:
    config = load_folder(save(library_model("phi"), tmp_path / "m")).config
    with pytest.raises(OurFault, match="compute in float32"):
        build_decoder(config, dtype=torch.bfloat16)


def test_activation_checkpointing_is_said_to_be_absent(tmp_path: Path) -> None:
    config = load_folder(save(library_model("phi"), tmp_path / "m")).config
    with pytest.raises(UserError, match="activation_checkpointing"):
        build_decoder(config, keeps_activations=False)
