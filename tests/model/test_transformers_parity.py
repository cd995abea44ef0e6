"""The same numbers and ids as transformers, from the same folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from farflung.engine.base import GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.model.characters import character_tokenizer
from farflung.model.config import LinearRope, Llama3Rope, ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import load_folder, save_folder
from farflung.model.layout import SequenceLayout
from farflung.model.tokenizer import Tokenizer
from farflung.model.weights import load_hf_state

transformers = pytest.importorskip("transformers")

_LENGTHS = [3, 40, 11]
_LLAMA3 = Llama3Rope(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)


_PLAIN_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
_LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.1, 1.5, 2.0], "long_factor": [1.0, 2.0, 4.0, 8.0]}


def _config(**changes: Any) -> ModelConfig:
    sizes: dict[str, Any] = {
        "vocab_size": 48,
        "hidden_size": 32,
        "intermediate_size": 56,
        "num_layers": 3,
        "num_heads": 4,
        "num_kv_heads": 4,
        "head_dim": 8,
    }
    return ModelConfig(**{**sizes, **changes})


def _tokens() -> Tensor:
    return torch.randint(0, 48, (sum(_LENGTHS),), generator=torch.Generator().manual_seed(0))


def _our_logits(config: ModelConfig, state: dict[str, Tensor], tokens: Tensor) -> Tensor:
    decoder = Decoder(config)
    load_hf_state(decoder, state)
    with torch.no_grad():
        return decoder(tokens, SequenceLayout.from_lengths(_LENGTHS)) @ decoder.lm_head_weight.T


def _their_logits(model: Any, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(part[None]).logits[0] for part in tokens.split(_LENGTHS)])


def _random_state(config: ModelConfig) -> dict[str, Tensor]:
    """Also norms and biases are away from 1 and 0, so that ignoring one shows."""
    noise = random_state(config, seed=4, std=0.2)
    generator = torch.Generator().manual_seed(5)
    return {
        name: tensor + 0.2 * torch.randn(tensor.shape, generator=generator) if tensor.ndim == 1 else tensor
        for name, tensor in noise.items()
    }


def _assert_same_logits(config: ModelConfig, model: Any) -> None:
    state = _random_state(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert (set(missing) <= {"lm_head.weight"}, unexpected) == (True, [])
    model.tie_weights()
    model.eval()
    tokens = _tokens()
    torch.testing.assert_close(_our_logits(config, state, tokens), _their_logits(model, tokens), rtol=0, atol=1e-5)


@pytest.fixture(autouse=True)
def _float32() -> Iterator[None]:
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(previous)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_kv_heads": 2},
        {"num_kv_heads": 1, "head_dim": 16},
        {"tie_word_embeddings": True},
        {"attention_bias": True, "attention_output_bias": True},
        {"rope_scaling": _LLAMA3, "rope_theta": 500_000.0},
        {"rope_scaling": LinearRope(factor=4.0)},
        {"rms_norm_eps": 1e-2},
    ],
)
def test_llama_gives_the_same_logits(changes: dict[str, Any]) -> None:
    config = _config(**changes)
    _assert_same_logits(config, transformers.LlamaForCausalLM(transformers.LlamaConfig(**config.to_hf())))


@pytest.mark.parametrize("changes", [{"tie_word_embeddings": True}, {"rope_scaling": _LLAMA3}, {"num_kv_heads": 4}])
def test_qwen2_gives_the_same_logits(changes: dict[str, Any]) -> None:
    config = _config(family="qwen2", attention_bias=True, **{"num_kv_heads": 2, **changes})
    _assert_same_logits(config, transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**config.to_hf())))


@pytest.mark.parametrize(
    "changes",
    [{"tie_word_embeddings": True}, {"attention_bias": True, "attention_output_bias": True}, {"head_dim": 16}],
)
def test_qwen3_gives_the_same_logits(changes: dict[str, Any]) -> None:
    config = _config(family="qwen3", qk_norm=True, num_kv_heads=2, **changes)
    _assert_same_logits(config, transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**config.to_hf())))


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "dynamic", "factor": 4.0},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 16},
        _PLAIN_YARN,
        _PLAIN_YARN | {"beta_fast": 4.0, "beta_slow": 0.5, "truncate": False},
        _PLAIN_YARN | {"attention_factor": 0.8},
        _PLAIN_YARN | {"mscale": 0.7, "mscale_all_dim": 0.3},
        _LONG | {"original_max_position_embeddings": 48},
        _LONG | {"original_max_position_embeddings": 48, "factor": 3.0},
        _LONG | {"original_max_position_embeddings": 48, "attention_factor": 1.3},
    ],
    ids=str,
)  # fmt: skip
def test_every_rope_scaling_gives_the_same_logits_also_after_saving(scaling: dict[str, Any]) -> None:
    """The table goes to transformers as it was read; ours is read, and read again from what we would save."""
    raw = _config(max_position_embeddings=64).to_hf() | {"rope_scaling": scaling, "rope_theta": 500.0}
    config = ModelConfig.from_hf(raw)
    assert ModelConfig.from_hf(config.to_hf()) == config
    _assert_same_logits(config, transformers.LlamaForCausalLM(transformers.LlamaConfig(**raw)))
    plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(**raw | {"rope_scaling": None}))
    state, tokens = _random_state(config), _tokens()
    plain.load_state_dict(state)
    differs = not torch.allclose(_our_logits(config, state, tokens), _their_logits(plain, tokens), atol=1e-3)
    assert differs == (scaling["rope_type"] != "dynamic")


def test_a_context_ends_where_a_longer_text_would_turn_earlier_tokens_otherwise() -> None:
    scaling = _LONG | {"original_max_position_embeddings": 48}
    raw = _config(max_position_embeddings=64).to_hf()
    assert ModelConfig.from_hf(raw | {"rope_scaling": scaling}).max_context_tokens == 48
    assert ModelConfig.from_hf(raw).max_context_tokens == 64


@pytest.mark.parametrize("window", [None, 8])
def test_mistral_gives_the_same_logits(window: int | None) -> None:
    raw = _config(num_kv_heads=2).to_hf() | {"architectures": ["MistralForCausalLM"], "sliding_window": window}
    config = ModelConfig.from_hf(raw)
    assert (config.window_of(0), ModelConfig.from_hf(config.to_hf())) == (window, config)
    _assert_same_logits(config, transformers.MistralForCausalLM(transformers.MistralConfig(**config.to_hf())))


@pytest.mark.parametrize(
    "changes", [{}, {"use_sliding_window": True, "sliding_window": 8}, {"no_rope_layers": [0, 1, 1]}]
)
def test_smollm3_gives_the_same_logits(changes: dict[str, Any]) -> None:
    """Its second layer of three knows no positions, and may look back a bounded number of tokens."""
    raw = _config(num_kv_heads=2, tie_word_embeddings=True).to_hf()
    raw |= {"architectures": ["SmolLM3ForCausalLM"], "no_rope_layer_interval": 2, "rope_theta": 500.0, **changes}
    config = ModelConfig.from_hf(raw)
    assert config.unrotated_layers == ((0,) if "no_rope_layers" in changes else (1,))
    assert ModelConfig.from_hf(config.to_hf()) == config
    _assert_same_logits(config, transformers.SmolLM3ForCausalLM(transformers.SmolLM3Config(**config.to_hf())))


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_windows_of_the_upper_qwen_layers_give_the_same_logits(family: str) -> None:
    features = {"attention_bias": True} if family == "qwen2" else {"qk_norm": True}
    raw = _config(family=family, num_kv_heads=2, **features).to_hf()
    raw |= {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    config = ModelConfig.from_hf(raw)
    assert [config.window_of(layer) for layer in range(3)] == [None, 8, 8]
    assert ModelConfig.from_hf(config.to_hf()) == config
    theirs = transformers.AutoConfig.for_model(**config.to_hf())
    _assert_same_logits(config, transformers.AutoModelForCausalLM.from_config(theirs))


def _gemma(**changes: Any) -> ModelConfig:
    """Documents of 40 tokens look beyond the window of 8; one layer of three is global, with a scaled rope."""
    raw = {
        "vocab_size": 48, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 24,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "architectures": ["Gemma3ForCausalLM"], "bos_token_id": 2, "eos_token_id": [1, 3], "pad_token_id": 0,
        **changes,
    }  # fmt: skip
    return ModelConfig.from_hf(raw)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": False},
        {"sliding_window": 64},
        {"rope_theta": 50_000.0, "rope_local_base_freq": 500.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ],
)
def test_gemma3_gives_the_same_logits(changes: dict[str, Any]) -> None:
    config = _gemma(**changes)
    model = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**config.to_hf()))
    _assert_same_logits(config, model)


def test_the_engine_continues_a_gemma_as_transformers_does_beyond_its_window() -> None:
    config = _gemma()
    model = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**config.to_hf())).eval()
    state = _random_state(config)
    model.load_state_dict(state, strict=False)
    model.tie_weights()
    engine = TorchEngine(config, max_batch_rows=8)
    engine.load_weights(state, 0)
    prompts = [part.numpy().astype("int32") for part in _tokens().split(_LENGTHS)]
    requests = [GroupRequest(group=i, prompt_tokens=prompt, num_samples=2) for i, prompt in enumerate(prompts)]
    params = SamplingParams(temperature=0.8, max_completion_tokens=24, eos_token_ids=())
    for completion in engine.generate(requests, params, bytes(32)):
        tokens = torch.tensor([*prompts[completion.group], *completion.tokens], dtype=torch.int64)
        with torch.no_grad():
            logits = model(tokens[None]).logits[0, len(prompts[completion.group]) - 1 : -1] / 0.8
        expected = logits.log_softmax(-1).gather(-1, tokens[len(prompts[completion.group]) :, None])[:, 0]
        torch.testing.assert_close(torch.from_numpy(completion.logprobs), expected, rtol=0, atol=2e-5)


def test_a_saved_folder_gives_transformers_the_same_ids_and_logits(tmp_path: Path) -> None:
    tokenizer = character_tokenizer("0123456789+= >\n")
    config = tiny_config(tokenizer, num_kv_heads=2)
    state = random_state(config, 0, std=0.2)
    save_folder(tmp_path / "m", config, state, tokenizer.files)
    loaded = load_folder(tmp_path / "m")

    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32)
    tokens = _tokens()
    torch.testing.assert_close(
        _our_logits(loaded.config, loaded.state, tokens), _their_logits(model, tokens), rtol=0, atol=1e-5
    )
    assert model.config.eos_token_id == model.generation_config.eos_token_id == 1
    assert transformers.AutoConfig.from_pretrained(tmp_path / "m").dtype == torch.bfloat16

    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    ours = Tokenizer.from_files(loaded.tokenizer_files)
    for text in ("12+34=", " > \n0", "7⟨eos⟩"):
        ids = ours.encode(text)
        assert theirs(text)["input_ids"] == ids
        assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids)
    messages = [{"role": "user", "content": "1+1="}]
    chat = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert chat == ours.render(messages)
    assert (theirs.pad_token_id, theirs.eos_token_id, len(theirs)) == (0, 1, ours.vocab_size)


def test_a_folder_that_transformers_saved_is_read(tmp_path: Path) -> None:
    config = _config(num_kv_heads=2, rope_scaling=_LLAMA3, eos_token_ids=(2, 3))
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config.to_hf()))
    model.save_pretrained(tmp_path / "m")
    for name, data in character_tokenizer("ab").files.items():
        (tmp_path / "m" / name).write_bytes(data)
    loaded = load_folder(tmp_path / "m")
    assert loaded.config == config
    tokens = _tokens()
    torch.testing.assert_close(
        _our_logits(config, loaded.state, tokens), _their_logits(model, tokens), rtol=0, atol=1e-5
    )
