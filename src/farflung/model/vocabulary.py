"""Which ids a policy may draw; the same set in engine, trainer and verifier."""

from farflung.model.any_config import AnyConfig
from farflung.model.tokenizer import Tokenizer


def never_drawn(tokenizer: Tokenizer, config: AnyConfig) -> tuple[int, ...]:
    """Ids without a meaning in a completion, ascending: reserved ones, and rows of the embedding beyond the tokenizer.

    End-of-sequence ids are never among them.
    """
    padding_rows = range(tokenizer.vocab_size, config.vocab_size)
    return tuple(sorted({*tokenizer.reserved_token_ids, *padding_rows} - set(end_of_sequence(tokenizer, config))))


def end_of_sequence(tokenizer: Tokenizer, config: AnyConfig) -> tuple[int, ...]:
    """Every id that ends a completion: what the model's configuration says and what its tokenizer says."""
    return tuple(sorted({*config.eos_token_ids, *tokenizer.eos_token_ids}))
