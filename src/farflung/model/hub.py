"""A model from a Hugging Face hub into its local cache, with the hub's own client (`huggingface_hub`, optional).

Only safetensors, JSON, tokenizer and template files are fetched, within limits. A repository that holds programs, or
weights as pickles alone, is refused before anything of it is fetched. A revision is pinned to its commit first.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farflung.errors import UserError
from farflung.model.description import CONFIG_FILE, read_json
from farflung.model.tokenizer import TOKENIZER_FILES
from farflung.model.trust import PICKLE_SUFFIXES, refuse_code, refuse_code_files

MAX_TABLE_BYTES = 64 << 20
"""Of a file that is no weights."""
MAX_WEIGHT_BYTES = 2 << 40
"""Of all weights together."""
_INDEX_FILE = "model.safetensors.index.json"
_TABLES = frozenset({CONFIG_FILE, _INDEX_FILE, *TOKENIZER_FILES})
_NAME = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
_ADVICE = "give a model folder or a .gguf file, or set HF_ENDPOINT to a hub that this machine reaches"


@dataclass(frozen=True, kw_only=True, slots=True)
class HubModel:
    """Fetched."""

    folder: Path
    commit: str
    licence: str
    """As the repository's card states it."""


def is_hub_id(source: str) -> bool:
    """`organisation/name` or `organisation/name@revision`."""
    return _NAME.fullmatch(source) is not None and ".." not in source


def fetch(source: str, *, endpoint: str | None = None, cache: Path | None = None) -> HubModel:
    """Blocking.

    Args:
        source: as `is_hub_id`.
        endpoint: of the hub; None = what `HF_ENDPOINT` says, or the public one.
        cache: None = the client's own.

    Raises:
        UserError: no client, no hub, no such model, or one that is refused.
    """
    hub = _client()
    failures = (OSError, ValueError, *hub.errors.HfHubHTTPError.__bases__)  # whatever its transport raises
    repository, _, revision = source.partition("@")
    try:
        info = hub.HfApi(endpoint=endpoint).model_info(repository, revision=revision or None, files_metadata=True)
        names = _allowed(info, source)

        def download(name: str) -> Path:
            return Path(hub.hf_hub_download(repository, name, revision=info.sha, endpoint=endpoint, cache_dir=cache))

        folder = download(CONFIG_FILE).parent
        refuse_code(read_json(folder / CONFIG_FILE))
        for name in names:
            download(name)
    except failures as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{source} is no folder here and cannot be fetched: {_first_line(error)}; {_ADVICE}") from error
    return HubModel(folder=folder, commit=str(info.sha), licence=_licence(info))


def _allowed(info: Any, source: str) -> list[str]:
    """Names of the files to fetch."""
    sizes = {str(each.rfilename): int(each.size or 0) for each in info.siblings}
    refuse_code_files(sizes, source)
    weights = {name: size for name, size in sizes.items() if name.endswith(".safetensors") and "/" not in name}
    if not weights:
        pickles = sorted(name for name in sizes if name.endswith(PICKLE_SUFFIXES))
        held = f"only as pickles ({', '.join(pickles[:3])}), which can run code" if pickles else "not as safetensors"
        raise UserError(f"{source} holds its weights {held}: look for a copy of the model as safetensors")
    tables = {name: size for name, size in sizes.items() if name in _TABLES}
    if CONFIG_FILE not in tables:
        raise UserError(f"{source} has no {CONFIG_FILE}: it is not a model that can be run")
    for name, size in tables.items():
        if size > MAX_TABLE_BYTES:
            raise UserError(f"{name} of {source} has {size} bytes: at most {MAX_TABLE_BYTES} are fetched")
    if sum(weights.values()) > MAX_WEIGHT_BYTES:
        raise UserError(f"the weights of {source} have {sum(weights.values())} bytes: at most {MAX_WEIGHT_BYTES}")
    return [*tables, *weights]


def _licence(info: Any) -> str:
    card = info.card_data
    stated = None if card is None else card.get("license_name") or card.get("license")
    return str(stated) if stated else "none is stated"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _client() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise UserError("fetching a model from a hub needs huggingface_hub: pip install 'farflung[import]'") from error
    return huggingface_hub
