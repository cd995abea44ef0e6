"""A GGUF file as tensors, configuration and tokenizer under their Hugging Face names.

The format's own libraries read it (extra `import`: `gguf` and `transformers`); quantised weights are expanded to
float32 once, so that nothing else here knows quantisation.
"""

import struct
import tempfile
from pathlib import Path
from typing import Any

import torch

from farflung.errors import UserError
from farflung.model.any_config import read_config
from farflung.model.description import load_tokenizer_files
from farflung.model.folder import LoadedModel
from farflung.model.weights import expected_shapes

MAGIC = b"GGUF"


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
    _check_contents(path)
    try:
        with tempfile.TemporaryDirectory() as alone:  # other files beside it would be read too
            Path(alone, path.name).symlink_to(path.resolve())
            where = {"pretrained_model_name_or_path": alone, "gguf_file": path.name, "local_files_only": True}
            model = transformers.AutoModelForCausalLM.from_pretrained(
                **where, dtype=torch.float32, trust_remote_code=False
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(**where, trust_remote_code=False)
    except (ValueError, KeyError, OSError, NotImplementedError, RuntimeError) as error:
        raise UserError(f"{path} cannot be converted: {error}") from error
    config = read_config(_plain_config(model.config))
    state = model.state_dict()
    return LoadedModel(
        config=config,
        state={name: state[name].detach() for name in expected_shapes(config)},
        tokenizer_files=_tokenizer_files(tokenizer),
    )


_MALFORMED = (
    ValueError, KeyError, IndexError, OSError, OverflowError, MemoryError, TypeError, AttributeError, struct.error,
)  # fmt: skip
"""What the reader raises for files that are cut short, or lie about sizes."""


def _check_contents(path: Path) -> None:
    """Refuse a file without weights before anything is built from what it says of itself."""
    import gguf

    try:
        num_tensors = len(gguf.GGUFReader(path).tensors)
    except _MALFORMED as error:
        raise UserError(
            f"{path} cannot be converted, it is damaged: {type(error).__name__}: {str(error)[:200]}"
        ) from error
    if not num_tensors:
        raise UserError(f"{path} cannot be converted: there are no weights in it; fetch it again")


def metadata_template(path: Path) -> str | None:
    """The chat template that the file itself states; None if it has none.

    Raises:
        UserError: as `load_gguf`.
    """
    _transformers()
    import gguf

    try:
        field = gguf.GGUFReader(path).get_field(gguf.Keys.Tokenizer.CHAT_TEMPLATE)
        return None if field is None else str(field.contents())
    except _MALFORMED as error:
        raise UserError(f"{path} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


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
