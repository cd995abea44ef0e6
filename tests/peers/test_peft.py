"""Adapters beside `peft`: the same logits from the same folder, in both directions."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from farflung.model.adapted import put_adapter
from farflung.model.adapter_files import Adapter, load_adapter_folder, save_adapter_folder
from farflung.model.characters import character_tokenizer
from farflung.model.config import ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.factory import random_state
from farflung.model.folder import save_folder
from farflung.model.layout import SequenceLayout
from farflung.model.lora import TARGETS, LoraSpec, adapter_shapes, merge
from farflung.model.weights import load_hf_state

pytestmark = [
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # peft's own, about transformers
    pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed: make test-peer"),
]

TOKENIZER = character_tokenizer("abcdefgh")
SIZES: dict[str, Any] = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
    "eos_token_ids": (1,),
}
FAMILIES = {
    "llama": ModelConfig(**SIZES),
    "qwen3": ModelConfig(**SIZES, family="qwen3", qk_norm=True, tie_word_embeddings=True),
}


def tokens() -> Tensor:
    return torch.randint(0, 48, (24,), generator=torch.Generator().manual_seed(0))


def our_logits(config: ModelConfig, state: dict[str, Tensor], adapter: Adapter | None) -> Tensor:
    decoder = Decoder(config)
    load_hf_state(decoder, state)
    if adapter is not None:
        put_adapter(decoder, adapter)
    with torch.no_grad():
        return decoder(tokens(), SequenceLayout.from_lengths([24])) @ decoder.lm_head_weight.T


def their_base(folder: Path) -> Any:
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def their_logits(model: Any) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(tokens()[None]).logits[0]
    return logits


@pytest.fixture(params=sorted(FAMILIES))
def base(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ModelConfig, dict[str, Tensor], Path]:
    config = FAMILIES[request.param]
    state = random_state(config, 4, 0.2)
    save_folder(tmp_path / "base", config, state, TOKENIZER.files, dtype=torch.float32)
    return config, state, tmp_path / "base"


@pytest.mark.parametrize("is_stabilised", [False, True])
@pytest.mark.parametrize("targets", [TARGETS, ("q_proj", "v_proj")])
def test_peft_computes_the_same_from_our_folder(
    base: tuple[ModelConfig, dict[str, Tensor], Path], targets: tuple[str, ...], is_stabilised: bool, tmp_path: Path
) -> None:
    import peft

    config, state, folder = base
    spec = LoraSpec(rank=3, alpha=5.0, targets=targets, is_rank_stabilised=is_stabilised)
    generator = torch.Generator().manual_seed(7)
    numbers = {
        name: 0.1 * torch.randn(shape, generator=generator) for name, shape in adapter_shapes(config, spec).items()
    }
    adapter = Adapter(spec=spec, state=numbers)
    save_adapter_folder(tmp_path / "adapter", adapter, base_name=str(folder))
    model = peft.PeftModel.from_pretrained(their_base(folder), tmp_path / "adapter")
    ours, theirs = our_logits(config, state, adapter), their_logits(model)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    assert float((ours - our_logits(config, state, None)).abs().max()) > 0.01
    merged = model.merge_and_unload().state_dict()
    for name, tensor in merge(state, numbers, spec).items():
        torch.testing.assert_close(tensor, merged[name], rtol=0, atol=1e-6)


def test_we_compute_the_same_from_pefts_folder(
    base: tuple[ModelConfig, dict[str, Tensor], Path], tmp_path: Path
) -> None:
    import peft

    config, state, folder = base
    wrapped = peft.get_peft_model(
        their_base(folder),
        peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, lora_dropout=0.1, target_modules="all-linear"),
    )
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1, generator=torch.Generator().manual_seed(3))
    wrapped.save_pretrained(tmp_path / "adapter")
    adapter = load_adapter_folder(tmp_path / "adapter", config)
    assert (adapter.spec.rank, adapter.spec.scale, adapter.spec.targets) == (4, 2.0, TARGETS)
    wrapped.eval()
    torch.testing.assert_close(our_logits(config, state, adapter), their_logits(wrapped), rtol=0, atol=1e-5)
