"""A model as a Hugging Face folder: `config.json`, safetensors weights, tokenizer files.

A folder is whole or absent: it is written beside its place and renamed. Pickled weights (`.bin`) are never opened.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from farflung.errors import OurFault, UserError
from farflung.model.any_config import AnyConfig
from farflung.model.description import CONFIG_FILE, load_config, load_tokenizer_files, read_json
from farflung.model.foreign import library
from farflung.model.foreign.config import ForeignConfig
from farflung.model.weights import check_state, expected_shapes, to_safetensors_bytes

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_BUFFER_SUFFIX = "rotary_emb.inv_freq"
"""Old checkpoints store this computed table beside the weights."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LoadedModel:
    """Everything of a folder that matters here."""

    config: AnyConfig
    state: dict[str, Tensor]
    """Hugging Face names, in the folder's own dtype, exactly those of `expected_shapes(config)`."""
    tokenizer_files: dict[str, bytes]


def load_folder(path: Path) -> LoadedModel:
    """Read a model.

    Raises:
        UserError: what is missing or wrong, and what to do.
    """
    config = load_config(path)
    state = dict(_tensors(path))
    if isinstance(config, ForeignConfig):
        state = library.from_files(config, state)
    check_state(config, state)
    return LoadedModel(
        config=config,
        state={name: state[name] for name in expected_shapes(config)},
        tokenizer_files=load_tokenizer_files(path),
    )


def weights_in(path: Path) -> str:
    """What the weight files hold, from their headers alone.

    Raises:
        UserError: they are absent, no safetensors, or not those of the folder's configuration.
    """
    config = load_config(path)
    shapes, dtypes = dict[str, tuple[int, ...]](), set[str]()
    for file in _weight_files(path):
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - not a mapping
                    if not name.endswith(_BUFFER_SUFFIX):
                        header = tensors.get_slice(name)
                        shapes[name] = tuple(header.get_shape())
                        dtypes.add(str(header.get_dtype()))
        except SafetensorError as error:
            raise UserError(f"{file} is not a safetensors file: {error}; fetch it again") from error
    wanted = expected_shapes(config)
    if isinstance(config, ForeignConfig) and not shapes.keys() >= wanted.keys():
        return f"{len(shapes)} tensors, {', '.join(sorted(dtypes))}, named otherwise than transformers has them"
    wrong = [name for name, shape in wanted.items() if shapes.get(name) != shape]
    if wrong:
        raise UserError(f"{path}: {len(wrong)} of {len(wanted)} tensors are missing or misshapen, such as {wrong[0]}")
    return f"{len(wanted)} tensors, {', '.join(sorted(dtypes))}"


def save_folder(
    path: Path,
    config: AnyConfig,
    state: Mapping[str, Tensor],
    tokenizer_files: Mapping[str, bytes],
    *,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Write a folder that transformers and vLLM load; a model that is there already is replaced.

    Raises:
        UserError: `path` exists and is not a model folder; config and state do not belong together.
        OurFault: the disk refuses.
    """
    check_state(config, state)
    if path.exists() and not (path / CONFIG_FILE).is_file():
        raise UserError(f"{path} exists and is not a model folder: choose another place, or remove it")
    named = {name: state[name] for name in expected_shapes(config)}
    if isinstance(config, ForeignConfig):
        named = library.to_files(config, named)
    files = {
        CONFIG_FILE: json.dumps(config.to_hf() | {"dtype": str(dtype).removeprefix("torch.")}, indent=2).encode(),
        WEIGHTS_FILE: to_safetensors_bytes(named, dtype),
        **tokenizer_files,
    }
    try:
        replace_folder(path, files)
    except OSError as error:
        raise OurFault(f"cannot write the model to {path}: {error.strerror or error}") from error


def replace_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Put a folder of these files in the place of the one that is there, if there is one; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as scratch:
        fresh, old = Path(scratch, "new"), Path(scratch, "old")
        fresh.mkdir()
        for name, data in files.items():
            with (fresh / name).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        is_replaced = path.exists()
        if is_replaced:
            path.rename(old)
        try:
            fresh.rename(path)
        except OSError:
            if is_replaced:
                old.rename(path)
            raise


def _tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    for file in _weight_files(path):
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - not a mapping
                    if not name.endswith(_BUFFER_SUFFIX):
                        yield name, tensors.get_tensor(name)
        except SafetensorError as error:
            raise UserError(f"{file} is not a safetensors file: {error}; fetch it again") from error


def _weight_files(path: Path) -> list[Path]:
    """One file, or the shards that an index names."""
    if (path / WEIGHTS_FILE).is_file():
        return [path / WEIGHTS_FILE]
    if (path / INDEX_FILE).is_file():
        names = sorted(set(_weight_map(path).values()))
        missing = [name for name in names if not (path / name).is_file()]
        if missing:
            raise UserError(f"{path} lacks {', '.join(missing[:3])}, which {INDEX_FILE} names: fetch the whole model")
        return [path / name for name in names]
    if any(path.glob("*.bin")):
        raise UserError(
            f"{path} holds its weights as pickles (.bin), which can run code and are not opened: "
            "save them as safetensors first"
        )
    raise UserError(f"{path} has no {WEIGHTS_FILE}: give the folder of a Hugging Face model with its weights")


def _weight_map(path: Path) -> dict[str, str]:
    weight_map = read_json(path / INDEX_FILE).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise UserError(f"{path / INDEX_FILE} has no weight_map: fetch the file again")
    for name in weight_map.values():
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise UserError(f"{path / INDEX_FILE} names the file {name!r}: only safetensors beside it are opened")
    return weight_map
