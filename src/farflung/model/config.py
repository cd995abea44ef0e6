"""The shape of a decoder: every number that fixes its tensors and its arithmetic.

Knows no torch: a process that only reads configurations starts without it. `hf_config` translates.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from farflung.model import hf_config
from farflung.model.json_values import require
from farflung.model.local_attention import LocalAttention
from farflung.model.rope_scaling import DynamicRope, LinearRope, Llama3Rope, LongRope, RopeScaling, YarnRope

__all__ = [
    "Activation",
    "DynamicRope",
    "Family",
    "LinearRope",
    "Llama3Rope",
    "LocalAttention",
    "LongRope",
    "ModelConfig",
    "RopeScaling",
    "YarnRope",
]

MAX_SIZE = 100_000_000
MAX_LAYERS = 10_000
"""Far above any model: what is larger is a broken or hostile file, and is refused before anything is made of it."""

Family = Literal["llama", "qwen2", "qwen3", "gemma3", "mistral", "smollm3"]
Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Everything that fixes a decoder's tensors and arithmetic.

    Raises:
        UserError: a value breaks a rule; the message names value, rule and fix.
    """

    family: Family = "llama"
    """Which Hugging Face class the config comes from and goes to."""
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    """Equal to `num_heads` = multi-head; fewer = grouped-query attention."""
    head_dim: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling = None
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    """The LM head is the embedding matrix."""
    attention_bias: bool = False
    """Bias on the query, key and value projections."""
    attention_output_bias: bool = False
    """Bias on the attention's output projection."""
    qk_norm: bool = False
    """RMSNorm over each query and key head before the rotation."""
    activation: Activation = "silu"
    """Of the gated MLP."""
    norm_offset: float = 0.0
    """Added to the weight of every RMSNorm; 1 in Gemma."""
    sandwich_norms: bool = False
    """A second RMSNorm on what attention and MLP give, before it joins the residual stream."""
    embedding_scale: float = 1.0
    """Token embeddings are multiplied by this."""
    attention_scale: float | None = None
    """Scores are multiplied by this; None = head_dim^-0.5."""
    local_attention: LocalAttention | None = None
    """Layers that look back a bounded number of tokens; None = every layer sees everything."""
    unrotated_layers: tuple[int, ...] = ()
    """Layers without rotary positions (SmolLM3)."""
    max_position_embeddings: int = 2048
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    """Each of them ends a completion."""
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads"):
            require(getattr(self, name) >= 1, f"{name} is {getattr(self, name)}: it must be at least 1")
            require(
                getattr(self, name) <= MAX_SIZE, f"{name} is {getattr(self, name)}: at most {MAX_SIZE} can be meant"
            )
        require(self.num_layers <= MAX_LAYERS, f"num_layers is {self.num_layers}: at most {MAX_LAYERS} can be meant")
        require(
            self.head_dim >= 2 and self.head_dim % 2 == 0,
            f"head_dim is {self.head_dim}: rotary embeddings need an even number; choose hidden_size / num_heads even",
        )
        require(
            self.num_heads % self.num_kv_heads == 0,
            f"num_kv_heads is {self.num_kv_heads}: it must divide num_heads ({self.num_heads})",
        )
        require(
            self.max_position_embeddings >= 1,
            f"max_position_embeddings is {self.max_position_embeddings}: it must be at least 1",
        )
        require(self.rope_theta > 0, f"rope_theta is {self.rope_theta}: it must be above 0")
        require(self.rms_norm_eps > 0, f"rms_norm_eps is {self.rms_norm_eps}: it must be above 0")
        special_ids = (self.bos_token_id, self.pad_token_id, *self.eos_token_ids)
        for token_id in special_ids:
            require(
                token_id is None or 0 <= token_id < self.vocab_size,
                f"special token id {token_id} is outside the vocabulary of {self.vocab_size}: "
                "model and tokenizer do not belong together",
            )
        local = self.local_attention
        require(
            local is None or len(local.is_local) == self.num_layers,
            f"local_attention names {0 if local is None else len(local.is_local)} layers: there are {self.num_layers}",
        )
        outside = [layer for layer in self.unrotated_layers if not 0 <= layer < self.num_layers]
        require(not outside, f"unrotated_layers names {outside[:3]}: there are {self.num_layers} layers")
        scaling = self.rope_scaling
        require(
            not isinstance(scaling, LongRope)
            or len(scaling.short_factor) == len(scaling.long_factor) == self.head_dim // 2,
            f"short_factor and long_factor must have head_dim / 2 = {self.head_dim // 2} numbers each",
        )

    @property
    def score_scale(self) -> float:
        """What attention scores are multiplied by."""
        return self.head_dim**-0.5 if self.attention_scale is None else self.attention_scale

    @property
    def max_context_tokens(self) -> int:
        """Tokens of prompt and completion that the model can hold (see `rope_scaling`)."""
        longest = self.max_position_embeddings
        if isinstance(self.rope_scaling, LongRope):
            longest = min(longest, self.rope_scaling.original_max_position_embeddings)
        return longest

    def window_of(self, layer: int) -> int | None:
        """Tokens that a layer looks back over, the own one included; None = all."""
        local = self.local_attention
        return local.window if local is not None and local.is_local[layer] else None

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> "ModelConfig":
        """Read a parsed `config.json`.

        Raises:
            UserError: an architecture or feature that this decoder lacks, or a missing or broken value.
        """
        return cls(**hf_config.read_fields(raw))

    def to_hf(self) -> dict[str, Any]:
        """A `config.json` that transformers loads as the family's class.

        Raises:
            UserError: a feature that the Hugging Face class does not have.
        """
        return hf_config.to_table(self)
