"""`farflung model import|inspect|convert`: model folders from elsewhere, looked at, written anew."""

import sys
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from farflung.errors import UserError
from farflung.model.packaged import PACKAGED, packaged_file

if TYPE_CHECKING:
    from farflung.model.folder import LoadedModel


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where a model goes, and what a person has agreed to."""

    folder: Path
    dtype: str
    may_replace: bool
    """A model folder that is there."""
    template: Path | None
    """Holds the chat template to take, whatever others say."""

    def check(self) -> None:
        """Before anything is read. Raises UserError: something is there already."""
        if self.folder.exists() and not (self.may_replace and (self.folder / "config.json").is_file()):
            raise UserError(
                f"{self.folder} exists: choose another place, or remove it; --replace takes the place of a model"
            )


def run_model(arguments: Namespace) -> int:
    """One of the three actions."""
    if arguments.action == "inspect":
        from farflung.cli.model_view import inspect

        return inspect(Path(arguments.source))
    target = Target(
        folder=Path(arguments.out or f"models/{_default_name(arguments.source)}"),
        dtype=arguments.dtype,
        may_replace=arguments.replace,
        template=None if arguments.template is None else Path(arguments.template),
    )
    target.check()
    if arguments.action == "convert":
        return _convert(Path(arguments.source), target)
    return _import(arguments.source, arguments.out, target)


def _import(source: str, out: str | None, target: Target) -> int:
    """A GGUF file, the name of a packaged one, a folder or a model on a hub, to a folder."""
    from farflung.model.hub import is_hub_id

    path = Path(source)
    if source in PACKAGED:
        sys.stdout.write(f"licence of the weights: {PACKAGED[source].licence}\n")
        with packaged_file(source) as file:
            return _import_gguf(file, target)
    if path.is_dir():
        if out is None:
            raise UserError("a model folder needs a place for its copy: farflung model import FOLDER OUT")
        return _convert(path, target)
    if path.is_file():
        return _import_gguf(path, target)
    if is_hub_id(source):
        return _import_from_hub(source, target)
    raise UserError(
        f"{source!r} is no file, no packaged model and no organisation/name of a hub: give a .gguf file, a model "
        f"folder, or one of {', '.join(PACKAGED)}"
    )


def _import_gguf(file: Path, target: Target) -> int:
    from farflung.model.gguf import load_gguf, metadata_template

    sys.stdout.write(f"reading {file.name} (some tens of seconds for 100 million parameters)\n")
    model = load_gguf(file)
    return _save(target, model, {file.name: metadata_template(file)})


def _import_from_hub(source: str, target: Target) -> int:
    from farflung.model.folder import load_folder
    from farflung.model.hub import fetch

    model = fetch(source)
    sys.stdout.write(f"{source} is at {model.commit}; licence of the weights: {model.licence}\n")
    return _save(target, load_folder(model.folder), {})


def _convert(source: Path, target: Target) -> int:
    from farflung.model.folder import load_folder
    from farflung.model.trust import refuse_code_folder

    refuse_code_folder(source)
    return _save(target, load_folder(source), {})


def _save(target: Target, model: "LoadedModel", stated: dict[str, str | None]) -> int:
    """
    Args:
        stated: chat templates that the source states elsewhere, by place.

    Raises:
        UserError: chat templates differ and nobody has said which one to take.
    """
    import torch

    from farflung.model.folder import save_folder
    from farflung.model.template_change import require_one, template_of, templates_in, with_template

    files = model.tokenizer_files
    if target.template is not None:
        files = with_template(files, _text_of(target.template))
    else:
        own: dict[str, str | None] = dict(templates_in(files)) or {"the source": None}
        require_one({**own, **stated, **_replaced_template(target.folder)})
    save_folder(target.folder, model.config, model.state, files, dtype=getattr(torch, target.dtype))
    if template_of(files) is None:
        sys.stdout.write("it has no chat template: chat_template.jinja beside tokenizer.json makes it one to talk to\n")
    sys.stdout.write(f"wrote {target.folder} ({target.dtype}): farflung model inspect {target.folder}\n")
    return 0


def _replaced_template(folder: Path) -> dict[str, str | None]:
    from farflung.model.description import load_tokenizer_files
    from farflung.model.template_change import template_of

    return {str(folder): template_of(load_tokenizer_files(folder))} if folder.exists() else {}


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--template is {path}, which cannot be read as text: {error}") from error


def _default_name(source: str) -> str:
    if source in PACKAGED:
        return source
    return Path(source.partition("@")[0]).name.removesuffix(".gguf").lower()
