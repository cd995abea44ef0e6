"""What `farflung model inspect` shows of a folder; of the weights only the headers are read."""

import math
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from farflung.model.any_config import AnyConfig
from farflung.model.config import ModelConfig
from farflung.model.description import load_config, load_tokenizer_files
from farflung.model.template_change import template_digest, template_of
from farflung.model.tokenizer import Tokenizer
from farflung.model.vocabulary import end_of_sequence, never_drawn
from farflung.wire.task import Message

PROBE = (Message(role="user", content="What is 7 + 5?"),)
"""What is rendered, so that a person sees the template at work."""
SHOWN_DIGITS = 16
"""Of a digest; more do not fit into a line."""
_SHOWN_FIRST = {"family", "tie_word_embeddings", "eos_token_ids", "max_position_embeddings"}


def inspect(path: Path) -> int:
    """Print it.

    Raises:
        UserError: no model folder, or one that cannot be run.
    """
    from farflung.model.folder import weights_in
    from farflung.model.weights import expected_shapes

    config, files = load_config(path), load_tokenizer_files(path)
    tokenizer, template = Tokenizer.from_files(files), template_of(files)
    shapes = expected_shapes(config)
    rows = {
        "family": config.family if isinstance(config, ModelConfig) else config.architecture,
        "run by": "the own decoder" if isinstance(config, ModelConfig) else f"transformers ({config.reason})",
        "parameters": f"{sum(math.prod(shape) for shape in shapes.values()):,}",
        "weights": weights_in(path),
        "tied": "head and embedding are one" if _is_tied(config) else "no",
        "context": f"{config.max_context_tokens:,} tokens",
        "ends with": str(list(end_of_sequence(tokenizer, config))),
        "tokenizer": f"{tokenizer.vocab_size:,} ids, {len(never_drawn(tokenizer, config))} never drawn",
        "template": "none" if template is None else f"sha256 {template_digest(template)[:SHOWN_DIGITS]}",
        **_features(config),
    }
    if template is not None:
        rows["a prompt"] = repr(tokenizer.render(PROBE))
    table = Table(box=None, show_header=False, padding=(0, 2))
    for name, value in rows.items():
        table.add_row(name, value)
    Console(file=sys.stdout).print(table, markup=False)
    return 0


def _is_tied(config: AnyConfig) -> bool:
    if isinstance(config, ModelConfig):
        return config.tie_word_embeddings
    from farflung.model.foreign.library import is_tied

    return is_tied(config)


def _features(config: AnyConfig) -> dict[str, str]:
    """Everything else that the configuration says."""
    table = asdict(config) if isinstance(config, ModelConfig) else config.to_hf()
    return {name: str(value) for name, value in table.items() if name not in _SHOWN_FIRST}
