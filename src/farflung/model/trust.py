"""What a model may not bring: code of its own. There is no setting that allows it.

`auto_map` in a table names classes in Python files beside the weights, which other loaders fetch and run.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from farflung.errors import UserError
from farflung.model.small_file import read_small

CODE_SUFFIXES = (".py", ".so", ".pyc")
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def refuse_code(raw: Mapping[str, Any], file: str = "config.json") -> None:
    """Raises UserError: the table names classes of the model's own."""
    if "auto_map" in raw:
        raise UserError(
            f"{file} has an auto_map: the model brings its own code ({str(raw['auto_map'])[:80]}), which is never run: "
            "look for a copy of the model that transformers runs by itself"
        )


def refuse_code_files(names: Iterable[str], where: str) -> None:
    """Raises UserError: there are programs among the files."""
    code = sorted(name for name in names if name.endswith(CODE_SUFFIXES))
    if code:
        raise UserError(
            f"{where} holds programs ({', '.join(code[:3])}): models that bring their own code are refused; "
            "look for a copy of the model without it"
        )


def refuse_code_folder(folder: Path) -> None:
    """Raises UserError: there are programs in the folder, or its tables name some."""
    if not folder.is_dir():
        return
    refuse_code_files((path.name for path in folder.iterdir()), str(folder))
    for name in ("config.json", "tokenizer_config.json"):
        try:
            table = json.loads(read_small(folder / name))
        except (OSError, ValueError, RecursionError):
            continue  # whoever reads it says so
        if isinstance(table, dict):
            refuse_code(table, name)
