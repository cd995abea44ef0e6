"""Small random models that transformers has and the own decoder has not, as folders."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers

from farflung.model.characters import character_tokenizer

TOKENIZER = character_tokenizer("".join(map(chr, range(97, 123))) + "0123456789+-= ?.")
VOCABULARY = TOKENIZER.vocab_size
_LLAMA_LIKE = {
    "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 96,
}  # fmt: skip
_SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96},
    "phi": _LLAMA_LIKE | {"num_key_value_heads": 4},
    "olmo2": _LLAMA_LIKE,
    "granite": _LLAMA_LIKE | {"logits_scaling": 4.0, "embedding_multiplier": 3.0, "residual_multiplier": 0.5},
    "qwen3_moe": _LLAMA_LIKE | {"head_dim": 8, "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2},
    "gemma2": _LLAMA_LIKE | {"head_dim": 8},
    "cohere2": _LLAMA_LIKE | {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
    "glm4_moe": _LLAMA_LIKE
    | {
        "head_dim": 8,
        "moe_intermediate_size": 24,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
    },
    "lfm2": _LLAMA_LIKE | {"layer_types": ["conv", "full_attention"]},
}
RUNNABLE = ("gpt2", "phi", "olmo2", "granite", "qwen3_moe", "glm4_moe", "cohere2", "lfm2")


def library_model(model_type: str, **changes: Any) -> Any:
    """Random weights, also of norms and biases."""
    torch.manual_seed(1)
    special = {"vocab_size": VOCABULARY, "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    config = transformers.AutoConfig.for_model(model_type, **_SIZES[model_type], **special, **changes)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
        for name, buffer in model.state_dict().items():
            if name.endswith("correction_bias"):  # no parameter: what an expert is chosen by
                buffer.add_(torch.randn_like(buffer))
    return model


def save(model: Any, folder: Path) -> Path:
    """As transformers saves it, with a tokenizer."""
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    for name, data in TOKENIZER.files.items():
        (folder / name).write_bytes(data)
    return folder


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
