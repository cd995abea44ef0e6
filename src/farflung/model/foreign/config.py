"""What is known of a foreign model before transformers is asked: its `config.json`, and the numbers that we need of it.

Needs neither torch nor transformers, so that a coordinator can state a pool's rules.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from farflung.errors import UserError
from farflung.model.json_values import ids, integer, optional_id, require
from farflung.model.trust import refuse_code

MAX_NUMBER = 100_000_000
MAX_LAYERS = 10_000
"""As `ModelConfig`'s: what is larger is a broken or hostile file."""
DEFAULT_CONTEXT_TOKENS = 2048
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length")
_LAYER_KEYS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer")
_CAUSAL = ("ForCausalLM", "LMHeadModel")
_DROPPED = frozenset(
    {
        "_name_or_path", "_commit_hash", "transformers_version", "dtype", "torch_dtype", "attn_implementation",
        "_attn_implementation", "_attn_implementation_internal", "experts_implementation", "_experts_implementation",
        "use_kernels", "kernel_config", "custom_pipelines", "gguf_file", "device_map", "trust_remote_code",
        "gradient_checkpointing",
    }
)  # fmt: skip
"""Where a model came from, and how somebody computed with it. Some of these could name code to fetch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignConfig:
    """A causal language model of transformers."""

    table: str
    """The rest of `config.json`, as JSON with sorted keys."""
    architecture: str
    """The class."""
    model_type: str
    vocab_size: int
    max_context_tokens: int
    """Tokens of prompt and completion that the model can hold."""
    tie_word_embeddings: bool
    """As the file says; transformers may know better."""
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    pad_token_id: int | None
    reason: str = field(default="", compare=False)
    """Why the own decoder does not run it."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any], reason: str = "") -> "ForeignConfig":
        """Read a parsed `config.json`.

        Raises:
            UserError: it brings code, is quantised, is no causal language model, or has numbers beyond reason.
        """
        refuse_code(raw)
        require(
            "quantization_config" not in raw,
            "config.json has a quantization_config: quantised weights are not supported; convert to bf16 or fp32 first",
        )
        named = (raw.get("architectures") or [None])[0]
        if not isinstance(named, str) or not named.endswith(_CAUSAL):
            raise UserError(f"config.json names the architecture {named!r}: it must be a causal language model")
        model_type = raw.get("model_type")
        if not isinstance(model_type, str):
            raise UserError(f"model_type is {model_type!r} in the model's config.json: it must be a name")
        _require_reasonable(raw)
        table = {key: value for key, value in raw.items() if key not in _DROPPED}
        return cls(
            table=json.dumps(table, sort_keys=True),
            architecture=named,
            model_type=model_type,
            vocab_size=integer(raw, "vocab_size"),
            max_context_tokens=_context_tokens(raw),
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
            bos_token_id=optional_id(raw, "bos_token_id"),
            eos_token_ids=ids(raw, "eos_token_id"),
            pad_token_id=optional_id(raw, "pad_token_id"),
            reason=reason,
        )

    def to_hf(self) -> dict[str, Any]:
        """A `config.json` that transformers loads as the same class."""
        table: dict[str, Any] = json.loads(self.table)
        return table


def _context_tokens(raw: Mapping[str, Any]) -> int:
    tokens = DEFAULT_CONTEXT_TOKENS
    for key in reversed(_CONTEXT_KEYS):
        tokens = integer(raw, key, default=tokens)
    rope = raw.get("rope_parameters") or raw.get("rope_scaling")
    if isinstance(rope, Mapping) and rope.get("rope_type", rope.get("type")) in ("longrope", "su"):
        # Beyond it transformers turns every earlier position anew (see `rope_scaling`).
        tokens = min(tokens, integer({**raw, **rope}, "original_max_position_embeddings", default=tokens))
    require(tokens >= 1, f"the model has {tokens} positions: it must have at least one")
    return tokens


def _require_reasonable(raw: Mapping[str, Any]) -> None:
    for key, value in raw.items():
        if isinstance(value, int) and not isinstance(value, bool):
            most = MAX_LAYERS if key in _LAYER_KEYS else MAX_NUMBER
            require(value <= most, f"{key} is {value}: at most {most} can be meant")
