"""Which of two ways a model is run: by the own decoder where that has everything, by transformers otherwise."""

from collections.abc import Mapping
from typing import Any

from farflung.model.config import ModelConfig
from farflung.model.foreign.config import ForeignConfig
from farflung.model.json_values import Unsupported
from farflung.model.trust import refuse_code

AnyConfig = ModelConfig | ForeignConfig


def read_config(raw: Mapping[str, Any]) -> AnyConfig:
    """Read a parsed `config.json`.

    Raises:
        UserError: it is broken, brings code, or is no causal language model.
    """
    refuse_code(raw)
    try:
        return ModelConfig.from_hf(raw)
    except Unsupported as reason:
        return ForeignConfig.from_hf(raw, reason=str(reason))
