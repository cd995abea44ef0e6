"""`farflung model import|inspect|convert`: model folders from elsewhere, looked at, written anew."""

import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from farflung.errors import UserError
from farflung.model.any_config import AnyConfig
from farflung.model.tokenizer import Tokenizer
from farflung.wire.task import Message

PROBE = (Message(role="user", content="What is 7 + 5?"),)
"""What `inspect` renders, so that a person sees the template at work."""


def run_model(arguments: Namespace) -> int:
    """One of the three actions."""
    match arguments.action:
        case "import":
            return _import(arguments.source, arguments.out, arguments.dtype)
        case "convert":
            return _convert(Path(arguments.source), Path(arguments.out), arguments.dtype)
        case _:
            return _inspect(Path(arguments.source))


def _import(source: str, out: str | None, dtype: str) -> int:
    """A GGUF file, or the name of a packaged one, to a folder."""
    from farflung.model.gguf import PACKAGED, find_packaged, load_gguf

    path = Path(source)
    if source in PACKAGED:
        path = find_packaged(source)
    elif path.is_dir():
        return _convert(path, Path(_required(out)), dtype)
    elif not path.is_file():
        raise UserError(
            f"{source!r} is no file and no packaged model: give a .gguf file, a model folder, or one of "
            f"{', '.join(PACKAGED)}"
        )
    target = Path(out or f"models/{source if source in PACKAGED else path.stem.lower()}")
    _refuse_overwrite(target)
    sys.stdout.write(f"reading {path.name} (some tens of seconds for 100 million parameters)\n")
    model = load_gguf(path)
    _save(target, model.config, model.state, model.tokenizer_files, dtype)
    if source in PACKAGED:
        sys.stdout.write(f"licence of the weights: {PACKAGED[source].licence}\n")
    return 0


def _convert(source: Path, out: Path, dtype: str) -> int:
    from farflung.model.folder import load_folder

    _refuse_overwrite(out)
    model = load_folder(source)
    _save(out, model.config, model.state, model.tokenizer_files, dtype)
    return 0


def _save(out: Path, config: AnyConfig, state: object, tokenizer_files: dict[str, bytes], dtype: str) -> None:
    import torch

    from farflung.model.folder import save_folder

    save_folder(out, config, state, tokenizer_files, dtype=getattr(torch, dtype))  # type: ignore[arg-type]
    sys.stdout.write(f"wrote {out} ({dtype}): farflung model inspect {out}\n")


def _inspect(path: Path) -> int:
    """What the folder holds; of the weights only the headers are read."""
    from farflung.model.description import load_config, load_tokenizer_files
    from farflung.model.folder import weights_in
    from farflung.model.weights import expected_shapes

    config, tokenizer = load_config(path), Tokenizer.from_files(load_tokenizer_files(path))
    num_parameters = sum(_product(shape) for shape in expected_shapes(config).values())
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_row("parameters", f"{num_parameters:,}")
    table.add_row("weights", weights_in(path))
    for name, value in asdict(config).items():
        table.add_row(name, str(value))
    table.add_row("tokenizer", f"{tokenizer.vocab_size:,} ids, ends with {list(tokenizer.eos_token_ids)}")
    table.add_row("never drawn", f"{len(tokenizer.reserved_token_ids)} ids")
    table.add_row("a prompt", repr(tokenizer.render(PROBE)))
    Console(file=sys.stdout).print(table, markup=False)
    return 0


def _refuse_overwrite(out: Path) -> None:
    if out.exists():
        raise UserError(f"{out} exists: choose another place, or remove it")


def _required(out: str | None) -> str:
    if out is None:
        raise UserError("a model folder needs a place for its copy: farflung model import FOLDER OUT")
    return out


def _product(shape: tuple[int, ...]) -> int:
    result = 1
    for size in shape:
        result *= size
    return result
