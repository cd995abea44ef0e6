"""An adapter as the files of the `peft` library: `adapter_config.json` and `adapter_model.safetensors`.

Read strictly: what this program does not do with an adapter (biases, DoRA, other ranks for some matrices, weights that
are saved beside it) is refused with words, never left out in silence. A field that is switched off (null, false, empty)
says nothing, whatever its name. Pickles (`adapter_model.bin`) are never opened. A folder is whole or absent.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from farflung.errors import OurFault, PeerFault, UserError
from farflung.model.any_config import AnyConfig
from farflung.model.config import ModelConfig
from farflung.model.description import read_json
from farflung.model.folder import replace_folder
from farflung.model.lora import TARGETS, LoraSpec, adapter_shapes, check_adapter
from farflung.model.weights import MAX_HEADER_BYTES, from_safetensors_bytes, to_safetensors_bytes
from farflung.wire.canonical import MALFORMED_RECORD

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
"""What `peft` puts before the names of the model that it wraps."""
MAX_CONFIG_BYTES = 1 << 20
MAX_RANK = 4096
_ALL = "all-linear"
_OF_ONE_LAYER = re.compile(r"^model\.layers\.\d+\.(self_attn|mlp)\.")
"""Projections may be named one by one; that every layer has them is seen from the weights."""
_READ = {"peft_type", "r", "lora_alpha", "target_modules", "use_rslora"}
_WITHOUT_EFFECT = {
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "lora_dropout",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "task_type",
}
"""Say where it comes from, or how it was trained, or belong to a switch that is off."""
_SAME_BASE = (None, True, False, "gaussian", "orthogonal")
"""Values of `init_lora_weights` that left the base as it was; others (pissa, olora, ...) changed it."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Adapter:
    spec: LoraSpec
    state: Mapping[str, Tensor]
    """As `lora.adapter_shapes` names them."""


def config_bytes(spec: LoraSpec, base_name: str = "") -> bytes:
    """`adapter_config.json`; the same arguments give the same bytes.

    Args:
        base_name: of the model below, for people.
    """
    alpha = int(spec.alpha) if spec.alpha == int(spec.alpha) else spec.alpha
    config = {
        "base_model_name_or_path": base_name or None,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": spec.rank,
        "target_modules": list(spec.targets),
        "task_type": "CAUSAL_LM",
        "use_rslora": spec.is_rank_stabilised,
    }
    return json.dumps(config, indent=2).encode()


def weights_bytes(state: Mapping[str, Tensor]) -> bytes:
    """`adapter_model.safetensors`, in the precision of the first tensor."""
    dtype = next(iter(state.values())).dtype
    return to_safetensors_bytes({PREFIX + name: tensor for name, tensor in state.items()}, dtype)


def read_adapter(config: AnyConfig, config_json: bytes, weights: bytes) -> Adapter:
    """From the bytes of the two files, of anybody.

    Raises:
        UserError: it does something that is not supported here, or does not fit the model.
        PeerFault: one of the files is malformed or too long.
    """
    if len(config_json) > MAX_CONFIG_BYTES:
        raise PeerFault(MALFORMED_RECORD, f"{CONFIG} has {len(config_json)} bytes, at most {MAX_CONFIG_BYTES} allowed")
    try:
        raw = json.loads(config_json)
    except (ValueError, RecursionError) as error:
        raise PeerFault(MALFORMED_RECORD, f"{CONFIG} is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise PeerFault(MALFORMED_RECORD, f"{CONFIG} holds a {type(raw).__name__}, not a table")
    own, spec = _own(config), read_spec(raw)
    state = from_safetensors_bytes(weights, max_weights_bytes(own, spec))
    return Adapter(spec=spec, state=_checked(own, spec, state))


def load_adapter_folder(path: Path, config: AnyConfig) -> Adapter:
    """Read a folder that this program or `peft` wrote, for a model of this configuration.

    Raises:
        UserError: what is missing, wrong or not supported.
    """
    if not (path / CONFIG).is_file():
        raise UserError(f"{path} has no {CONFIG}: give the folder of a LoRA adapter as peft saves it")
    if (path / CONFIG).stat().st_size > MAX_CONFIG_BYTES:
        raise UserError(f"{path / CONFIG} has more than {MAX_CONFIG_BYTES} bytes: this is no adapter's")
    own, spec = _own(config), read_spec(read_json(path / CONFIG))
    file = path / WEIGHTS
    if not file.is_file():
        if any(path.glob("*.bin")):
            raise UserError(f"{path} holds its adapter as a pickle (.bin), which can run code and is not opened")
        raise UserError(f"{path} has no {WEIGHTS}: give the folder of a LoRA adapter as peft saves it")
    most = max_weights_bytes(own, spec)
    if file.stat().st_size > most:
        raise UserError(
            f"{file} has {file.stat().st_size} bytes: an adapter of rank {spec.rank} has at most {most} here"
        )
    try:
        state = from_safetensors_bytes(file.read_bytes(), most)
    except PeerFault as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    return Adapter(spec=spec, state=_checked(own, spec, state))


def save_adapter_folder(path: Path, adapter: Adapter, *, base_name: str = "") -> None:
    """Write a folder that `peft` and vLLM load; an adapter that is there already is replaced.

    Raises:
        UserError: `path` exists and is no adapter's folder.
        OurFault: the disk refuses.
    """
    if path.exists() and not (path / CONFIG).is_file():
        raise UserError(f"{path} exists and is not the folder of an adapter: choose another place, or remove it")
    try:
        replace_folder(path, {CONFIG: config_bytes(adapter.spec, base_name), WEIGHTS: weights_bytes(adapter.state)})
    except OSError as error:
        raise OurFault(f"cannot write the adapter to {path}: {error.strerror or error}") from error


def max_weights_bytes(config: ModelConfig, spec: LoraSpec) -> int:
    """Of `adapter_model.safetensors`, in float64."""
    return 8 * sum(rows * columns for rows, columns in adapter_shapes(config, spec).values()) + MAX_HEADER_BYTES


def _own(config: AnyConfig) -> ModelConfig:
    if not isinstance(config, ModelConfig):
        raise UserError(
            "this model is run by transformers, where adapters are not applied: let peft merge it into the model first"
        )
    return config


def read_spec(raw: Mapping[str, Any]) -> LoraSpec:
    """Of a parsed `adapter_config.json`. Raises UserError: not LoRA, or with something that is not supported."""
    if raw.get("peft_type") != "LORA":
        raise UserError(f"peft_type is {str(raw.get('peft_type'))[:40]!r} in {CONFIG}: only LORA is supported")
    for key, value in raw.items():
        _refuse_unsupported(key, value)
    rank, alpha, stabilised = raw.get("r"), raw.get("lora_alpha"), raw.get("use_rslora") or False
    if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank <= MAX_RANK:
        raise UserError(f"r is {str(rank)[:40]} in {CONFIG}: it must be a whole number from 1 to {MAX_RANK}")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha <= 1e6:
        raise UserError(f"lora_alpha is {str(alpha)[:40]} in {CONFIG}: it must be a number above 0, at most 1e6")
    if not isinstance(stabilised, bool):
        raise UserError(f"use_rslora is {str(stabilised)[:40]} in {CONFIG}: it must be true or false")
    return LoraSpec(rank=rank, alpha=float(alpha), targets=_targets(raw), is_rank_stabilised=stabilised)


def _targets(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """In the order of the forward pass."""
    named = raw.get("target_modules")
    if named == _ALL:
        return TARGETS
    if not isinstance(named, list) or not named:
        raise UserError(
            f"target_modules is {str(named)[:80]} in {CONFIG}: it must be a list of names, or {_ALL!r}; patterns are "
            "not supported"
        )
    short = {str(name): _OF_ONE_LAYER.sub("", str(name)) for name in named}
    other = [name for name, target in short.items() if target not in TARGETS]
    if other:
        raise UserError(f"target_modules has {other[0][:80]!r} in {CONFIG}: supported are {', '.join(TARGETS)}")
    return tuple(target for target in TARGETS if target in short.values())


def _refuse_unsupported(key: str, value: Any) -> None:
    if key in _READ or key in _WITHOUT_EFFECT:
        return
    if key == "init_lora_weights":
        if not any(value is known or (isinstance(known, str) and value == known) for known in _SAME_BASE):
            raise UserError(
                f"init_lora_weights is {str(value)[:40]!r} in {CONFIG}: such an adapter belongs to a base that its "
                "initialisation has changed; have peft convert it to plain LoRA"
            )
        return
    is_off = value is None or value is False or value in ([], {}, "") or (key == "bias" and value == "none")
    if not is_off:
        raise UserError(
            f"{key[:60]} is {str(value)[:60]} in {CONFIG}, which is not supported here: only plain LoRA matrices of "
            "one rank are"
        )


def _checked(config: ModelConfig, spec: LoraSpec, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Under our names, all of them there, of the right shape, and numbers."""
    plain = {name.removeprefix(PREFIX): tensor for name, tensor in state.items()}
    check_adapter(config, spec, plain)
    for name, tensor in plain.items():
        if not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{name} of the adapter holds numbers that are not finite")
    return {name: plain[name] for name in adapter_shapes(config, spec)}
