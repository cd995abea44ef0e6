"""How a user of transformers would sample: `generate` with its dynamic cache, and logprobs from the returned logits."""

from typing import Any

import torch
import transformers
from torch import Tensor

from farflung.model.config import ModelConfig

VERSION = f"transformers {transformers.__version__}"


def llama(config: ModelConfig, state: dict[str, Tensor]) -> Any:
    """`LlamaForCausalLM` in float32 with these weights."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**(config.to_hf() | {"dtype": "float32"}))).eval()
    tied = {"lm_head.weight": state["model.embed_tokens.weight"]} if config.tie_word_embeddings else {}
    model.load_state_dict(state | tied)
    return model


def generate(
    model: Any, prompts: Tensor, *, max_new_tokens: int, eos_token_ids: tuple[int, ...] = ()
) -> tuple[Tensor, Tensor]:
    """Tokens and logprobs [B, T] at T = 1 over the whole vocabulary; without end ids every row runs to the limit."""
    with torch.inference_mode():
        result = model.generate(
            input_ids=prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=max_new_tokens,
            use_cache=True,
            return_dict_in_generate=True,
            output_logits=True,
            pad_token_id=0,
            eos_token_id=list(eos_token_ids) or None,
        )
        tokens = result.sequences[:, prompts.shape[1] :]
        logprobs = torch.log_softmax(torch.stack(result.logits, dim=1).float(), dim=-1)
        return tokens, logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
