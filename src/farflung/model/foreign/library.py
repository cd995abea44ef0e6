"""The only place that asks transformers to build a model or to translate names of weights.

A foreign model's tensors have the names of its own modules here, which need not be those of its files: transformers
fuses the experts of a mixture when it reads them, for instance. `from_files` and `to_files` translate.
"""

import inspect
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from farflung.errors import UserError
from farflung.model.foreign.config import ForeignConfig
from farflung.model.json_values import require


def build(config: ForeignConfig, dtype: torch.dtype, device: torch.device | str) -> Any:
    """The model in evaluation mode (no dropout), its weights not yet set.

    Raises:
        UserError: transformers is not installed, or does not have the model.
    """
    transformers = _transformers()
    from transformers.initialization import no_init_weights

    with no_init_weights():
        model = _from_config(transformers, config, dtype)
    model.tie_weights()
    return model.to(device).eval()


@lru_cache(maxsize=8)
def shapes(config: ForeignConfig) -> Mapping[str, tuple[int, ...]]:
    """Every tensor by name; one that has two names (a tied head) by its first.

    Raises:
        UserError: as `build`.
    """
    return {name: tuple(tensor.shape) for name, tensor in own_tensors(_without_weights(config)).items()}


def is_tied(config: ForeignConfig) -> bool:
    """Whether the head is the embedding matrix."""
    model = _without_weights(config)
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight


def own_tensors(model: Any) -> dict[str, Tensor]:
    """Parameters and persistent buffers themselves, each once."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor
    return tensors


def cache_argument(model: Any) -> str:
    """What the model calls its cache: transformers renames it, model after model."""
    parameters = inspect.signature(model.forward).parameters
    for name in ("cache", "past_key_values", "cache_params"):
        if name in parameters:
            return name
    raise UserError(f"{type(model).__name__} takes no cache: it cannot be sampled")


def from_files(config: ForeignConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors as safetensors files name them -> under the model's names, in their dtype.

    Raises:
        UserError: tensors are missing, unexpected or of another shape.
    """
    wanted = shapes(config)
    if {name: tuple(tensor.shape) for name, tensor in state.items()} == wanted:
        return {name: state[name] for name in wanted}
    transformers = _transformers()
    transformers.utils.logging.disable_progress_bar()
    model, report = type(_without_weights(config)).from_pretrained(
        None,
        config=_library_config(config),
        state_dict=dict(state),
        dtype=next(iter(state.values())).dtype if state else torch.float32,
        local_files_only=True,
        ignore_mismatched_sizes=True,  # they are in the report
        output_loading_info=True,
    )
    wrong = {kind: sorted(map(str, names))[:3] for kind, names in report.items() if names}
    if wrong:
        raise UserError(f"weights and config do not belong together: {wrong}")
    return {name: tensor.detach() for name, tensor in own_tensors(model).items()}


def to_files(config: ForeignConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse: as transformers would save them, so that other programs read them too."""
    from transformers.core_model_loading import revert_weight_conversion

    converted: dict[str, Tensor] = revert_weight_conversion(_without_weights(config), dict(state))
    return converted


def _without_weights(config: ForeignConfig) -> Any:
    transformers = _transformers()
    with torch.device("meta"):
        model = _from_config(transformers, config, torch.float32)
    model.tie_weights()
    return model


def _from_config(transformers: Any, config: ForeignConfig, dtype: torch.dtype) -> Any:
    described = _library_config(config)
    last: Exception | None = None
    for attention in ("sdpa", "eager"):
        try:
            model = transformers.AutoModelForCausalLM.from_config(
                described, attn_implementation=attention, dtype=dtype, trust_remote_code=False
            )
        except (ValueError, TypeError, KeyError, AttributeError, ImportError, RuntimeError) as error:
            last = error
            continue
        require(
            type(model).__name__ == config.architecture,
            f"config.json names {config.architecture}, but transformers has {type(model).__name__} for the model type "
            f"{config.model_type!r}",
        )
        return model
    raise UserError(f"transformers cannot make a {config.architecture}: {last}") from last


def _library_config(config: ForeignConfig) -> Any:
    transformers = _transformers()
    table = config.to_hf()
    table.pop("model_type")
    try:
        return transformers.AutoConfig.for_model(config.model_type, **table)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"transformers {transformers.__version__} cannot run a {config.architecture}: {str(error)[:300]}"
        ) from error


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise UserError(
            "the own decoder does not have this model, and transformers, which may, is not installed: "
            "pip install 'farflung[import]'"
        ) from error
    return transformers
