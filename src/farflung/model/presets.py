"""Shapes of small models. Needs no torch."""

from farflung.errors import UserError
from farflung.model.config import ModelConfig
from farflung.model.tokenizer import Tokenizer


def tiny_config(
    tokenizer: Tokenizer,
    *,
    hidden_size: int = 64,
    num_layers: int = 2,
    num_heads: int = 4,
    num_kv_heads: int | None = None,
    intermediate_size: int = 192,
    max_position_embeddings: int = 512,
    tie_word_embeddings: bool = False,
) -> ModelConfig:
    """A decoder of about 0.1 million parameters, whose vocabulary is the tokenizer's.

    Args:
        num_kv_heads: None = as many as `num_heads`.

    Raises:
        UserError: a size breaks a rule of `ModelConfig`, or the heads do not divide the hidden size.
    """
    if num_heads < 1 or hidden_size % num_heads:
        raise UserError(f"hidden_size is {hidden_size}: it must be a multiple of num_heads ({num_heads})")
    return ModelConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_heads if num_kv_heads is None else num_kv_heads,
        head_dim=hidden_size // num_heads,
        max_position_embeddings=max_position_embeddings,
        tie_word_embeddings=tie_word_embeddings,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_ids=tokenizer.eos_token_ids,
        pad_token_id=tokenizer.pad_token_id,
    )
