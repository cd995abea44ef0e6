"""The shape of a decoder, and its translation from and to a Hugging Face `config.json`.

Knows no torch: a process that only reads configurations starts without it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farflung.errors import UserError

_ARCHITECTURE = "LlamaForCausalLM"
_ACTIVATION = "silu"


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearRope:
    """Every frequency divided by `factor` (position interpolation)."""

    factor: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Llama3Rope:
    """Low frequencies divided by `factor`, high ones kept, a linear blend between (Llama 3.1's rule)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


RopeScaling = LinearRope | Llama3Rope | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Everything that fixes a decoder's tensors and arithmetic.

    Raises:
        UserError: a value breaks a rule; the message names value, rule and fix.
    """

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
    max_position_embeddings: int = 2048
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    """Each of them ends a completion."""
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads"):
            _require(getattr(self, name) >= 1, f"{name} is {getattr(self, name)}: it must be at least 1")
        _require(
            self.head_dim >= 2 and self.head_dim % 2 == 0,
            f"head_dim is {self.head_dim}: rotary embeddings need an even number; choose hidden_size / num_heads even",
        )
        _require(
            self.num_heads % self.num_kv_heads == 0,
            f"num_kv_heads is {self.num_kv_heads}: it must divide num_heads ({self.num_heads})",
        )
        _require(
            self.max_position_embeddings >= 1,
            f"max_position_embeddings is {self.max_position_embeddings}: it must be at least 1",
        )
        _require(self.rope_theta > 0, f"rope_theta is {self.rope_theta}: it must be above 0")
        _require(self.rms_norm_eps > 0, f"rms_norm_eps is {self.rms_norm_eps}: it must be above 0")
        special_ids = (self.bos_token_id, self.pad_token_id, *self.eos_token_ids)
        for token_id in special_ids:
            _require(
                token_id is None or 0 <= token_id < self.vocab_size,
                f"special token id {token_id} is outside the vocabulary of {self.vocab_size}: "
                "model and tokenizer do not belong together",
            )

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> "ModelConfig":
        """Read a parsed `config.json`.

        Raises:
            UserError: an architecture or feature that this decoder lacks, or a missing or broken value.
        """
        _require_supported(raw)
        hidden_size = _integer(raw, "hidden_size")
        num_heads = _integer(raw, "num_attention_heads")
        attention_bias = bool(raw.get("attention_bias", False))
        theta, scaling = _rope(raw)
        return cls(
            vocab_size=_integer(raw, "vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=_integer(raw, "intermediate_size"),
            num_layers=_integer(raw, "num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=_integer(raw, "num_key_value_heads", default=num_heads),
            head_dim=_integer(raw, "head_dim", default=hidden_size // max(num_heads, 1)),
            rope_theta=theta,
            rope_scaling=scaling,
            rms_norm_eps=_number(raw, "rms_norm_eps", default=1e-6),
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
            attention_bias=attention_bias,
            attention_output_bias=attention_bias,
            max_position_embeddings=_integer(raw, "max_position_embeddings", default=2048),
            bos_token_id=_optional_id(raw, "bos_token_id"),
            eos_token_ids=_ids(raw, "eos_token_id"),
            pad_token_id=_optional_id(raw, "pad_token_id"),
        )

    def to_hf(self) -> dict[str, Any]:
        """A `config.json` that transformers loads as `LlamaForCausalLM`.

        Raises:
            UserError: a feature that the Hugging Face class does not have.
        """
        _require(not self.qk_norm, f"qk_norm is on: {_ARCHITECTURE} has none; the model cannot be saved as one")
        _require(
            self.attention_bias == self.attention_output_bias,
            f"attention_bias is {self.attention_bias} and attention_output_bias {self.attention_output_bias}: "
            f"{_ARCHITECTURE} has both or neither",
        )
        eos_ids = list(self.eos_token_ids)
        return {
            "architectures": [_ARCHITECTURE],
            "model_type": "llama",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": _ACTIVATION,
            "rope_theta": self.rope_theta,
            "rope_scaling": _rope_scaling_to_hf(self.rope_scaling),
            "rms_norm_eps": self.rms_norm_eps,
            "tie_word_embeddings": self.tie_word_embeddings,
            "attention_bias": self.attention_bias,
            "mlp_bias": False,
            "attention_dropout": 0.0,
            "max_position_embeddings": self.max_position_embeddings,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": eos_ids[0] if len(eos_ids) == 1 else (eos_ids or None),
            "pad_token_id": self.pad_token_id,
        }


def _require(rule_holds: bool, message: str) -> None:
    if not rule_holds:
        raise UserError(message)


def _require_supported(raw: Mapping[str, Any]) -> None:
    architectures = raw.get("architectures") or [None]
    _require(
        architectures[0] == _ARCHITECTURE,
        f"config.json names the architecture {architectures[0]!r}: only {_ARCHITECTURE!r} is supported",
    )
    activation = raw.get("hidden_act", _ACTIVATION)
    _require(activation == _ACTIVATION, f"hidden_act is {activation!r}: only {_ACTIVATION!r} is supported")
    _require(not raw.get("mlp_bias", False), "mlp_bias is true: biases in the MLP are not supported")
    _require(
        "quantization_config" not in raw,
        "config.json has a quantization_config: quantised weights are not supported; convert to bf16 or fp32 first",
    )


def _rope(raw: Mapping[str, Any]) -> tuple[float, RopeScaling]:
    """Base and scaling from either spelling: `rope_parameters` (transformers 5) or `rope_theta` + `rope_scaling`."""
    params = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    _require(isinstance(params, Mapping), f"rope parameters are {params!r}: they must be a table")
    theta = _number(params, "rope_theta", default=_number(raw, "rope_theta", default=10_000.0))
    kind = params.get("rope_type", params.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, LinearRope(factor=_number(params, "factor"))
    if kind == "llama3":
        return theta, Llama3Rope(
            factor=_number(params, "factor"),
            low_freq_factor=_number(params, "low_freq_factor"),
            high_freq_factor=_number(params, "high_freq_factor"),
            original_max_position_embeddings=_integer(params, "original_max_position_embeddings"),
        )
    raise UserError(f"rope_type is {kind!r}: only 'default', 'linear' and 'llama3' are supported")


def _rope_scaling_to_hf(scaling: RopeScaling) -> dict[str, Any] | None:
    if scaling is None:
        return None
    if isinstance(scaling, LinearRope):
        return {"rope_type": "linear", "factor": scaling.factor}
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_max_position_embeddings,
    }


def _integer(raw: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = raw.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError(f"{key} is {value!r} in the model's config.json: it must be a whole number")
    return value


def _number(raw: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = raw.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{key} is {value!r} in the model's config.json: it must be a number")
    return float(value)


def _optional_id(raw: Mapping[str, Any], key: str) -> int | None:
    return None if raw.get(key) is None else _integer(raw, key)


def _ids(raw: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """One id, a list of ids, or nothing."""
    value = raw.get(key)
    if value is None:
        return ()
    values = value if isinstance(value, list) else [value]
    return tuple(_integer({key: item}, key) for item in values)
