"""What a model folder says about its model, without the weights and without torch: configuration and tokenizer."""

import json
from pathlib import Path
from typing import Any

from farflung.errors import UserError
from farflung.model.any_config import AnyConfig, read_config
from farflung.model.small_file import read_small
from farflung.model.tokenizer import TOKENIZER_FILE, TOKENIZER_FILES

CONFIG_FILE = "config.json"


def load_config(path: Path) -> AnyConfig:
    """Only the configuration. Raises UserError: no model folder, or a model that is not supported."""
    if not path.is_dir():
        raise UserError(f"{path} is not a folder: give the folder of a Hugging Face model")
    return read_config(read_json(path / CONFIG_FILE))


def model_name(path: Path) -> str:
    """What to call the model of a folder: a run's `model` has the run's name."""
    resolved = path.resolve()
    return resolved.parent.name if resolved.name == "model" else resolved.name


def load_tokenizer_files(path: Path) -> dict[str, bytes]:
    """The files that `Tokenizer.from_files` takes. Raises UserError: no `tokenizer.json`."""
    if not (path / TOKENIZER_FILE).is_file():
        raise UserError(
            f"{path} has no {TOKENIZER_FILE}: save the model's tokenizer there in the fast (tokenizers) format"
        )
    return {name: read_small(path / name) for name in TOKENIZER_FILES if (path / name).is_file()}


def read_json(file: Path) -> dict[str, Any]:
    """A table. Raises UserError: no such file, or not a JSON table."""
    try:
        value = json.loads(read_small(file))
    except FileNotFoundError:
        raise UserError(f"{file.parent} has no {file.name}: give the folder of a Hugging Face model") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is not JSON: {error}; fetch it again") from error
    if not isinstance(value, dict):
        raise UserError(f"{file} holds a {type(value).__name__}, not a table; fetch it again")
    return value
