"""A project folder as a package: what `pyproject.toml` says and the files beside it. Nothing of it is run.

pyproject.toml, README.md, LICENSE*      of the top folder
src/**                                   modules and their data; what the child imports from
tests/**

[tool.farflung]                          what the author declares; each line may be left out
verifier = "function"                    or rules, program, judge (`wire.package.Verifier`)
sandbox = "none"                         or code: runs programs that a model wrote
reproducible = true
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from farflung.errors import UserError
from farflung.wire.canonical import sha256_hex
from farflung.wire.package import (
    MAX_FILE_BYTES,
    MAX_FILES,
    PackagedEnvironment,
    PackagedFile,
    PackageManifest,
    SandboxNeed,
    Verifier,
)

GROUP = "farflung.environments"
SOURCE = "src"
"""Folder of a package that its code is imported from."""
_FOLDERS = (SOURCE, "tests")
_LEFT_OUT = re.compile(r"__pycache__|\..*|.*\.egg-info|.*\.pyc")
_AT_TOP = re.compile(r"pyproject\.toml|README\.md|(LICEN[CS]E|NOTICE|COPYING|AUTHORS)([.-][A-Za-z0-9-]+)?")
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_MAX_PROJECT_BYTES = 1 << 16


class _Declared(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[tool.farflung]`."""

    verifier: Verifier = "function"
    sandbox: SandboxNeed = "none"
    reproducible: bool = True


class _Project(msgspec.Struct, frozen=True, rename="kebab"):
    """`[project]`, as far as it is looked at; see packaging.python.org, "pyproject.toml specification"."""

    name: str
    version: str
    description: str = ""
    license: str | Mapping[Literal["text", "file"], str] = ""
    dependencies: tuple[str, ...] = ()
    entry_points: Mapping[str, Mapping[str, str]] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """A manifest with the files that it names."""

    manifest: PackageManifest
    files: Mapping[str, bytes]


def read_project(folder: Path) -> Package:
    """Raises `UserError` naming the file, the rule and the fix."""
    project, declared = _parse(folder)
    files = _files(folder)
    for needed, hint in (("README.md", "say what it asks"), ("LICENSE", "say who may use it")):
        if not any(path == needed or path.startswith(f"{needed}.") for path in files):
            raise UserError(f"{folder} has no {needed}: {hint}")
    environments = project.entry_points.get(GROUP, {})
    if not environments:
        raise UserError(
            f'{folder / "pyproject.toml"} has no [project.entry-points."{GROUP}"]: name an environment there'
        )
    licence = project.license if isinstance(project.license, str) else project.license.get("text", "")
    try:
        manifest = PackageManifest(
            name=project.name,
            version=project.version,
            summary=project.description,
            licence=licence,
            verifier=declared.verifier,
            sandbox=declared.sandbox,
            is_reproducible=declared.reproducible,
            environments=tuple(
                PackagedEnvironment(name=name, reference=reference) for name, reference in sorted(environments.items())
            ),
            requires=_requires(project.dependencies),
            files=tuple(
                PackagedFile(path=path, num_bytes=len(files[path]), sha256=sha256_hex(files[path]))
                for path in sorted(files)
            ),
        )
    except ValueError as error:
        raise UserError(f"{folder}: {error}") from error
    return Package(manifest=manifest, files=files)


def _parse(folder: Path) -> tuple[_Project, _Declared]:
    path = folder / "pyproject.toml"
    try:
        if path.stat().st_size > _MAX_PROJECT_BYTES:
            raise UserError(f"{path} is larger than {_MAX_PROJECT_BYTES} bytes")
        tree: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        tool = tree.get("tool", {}).get("farflung", {})
        return msgspec.convert(tree.get("project", {}), _Project), msgspec.convert(tool, _Declared)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError, AttributeError) as error:
        raise UserError(f"{path} cannot be used: {error}; `farflung env new NAME` makes one that can") from error


def _requires(dependencies: tuple[str, ...]) -> tuple[str, ...]:
    """Names alone: which release is here is the operator's affair."""
    names = {match[1].lower() for each in dependencies if (match := _REQUIREMENT.match(each))}
    return tuple(sorted(names - {"farflung"}))


def _files(folder: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in _paths(folder):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not path.is_file():
            raise UserError(f"{path} is not a plain file: packages hold plain files only")
        if path.stat().st_size > MAX_FILE_BYTES or len(found) >= MAX_FILES:
            raise UserError(f"{path}: a package has at most {MAX_FILES} files of at most {MAX_FILE_BYTES} bytes")
        found[name] = path.read_bytes()
    return found


def _paths(folder: Path) -> Iterator[Path]:
    yield from (path for path in sorted(folder.iterdir()) if _AT_TOP.fullmatch(path.name))
    for name in _FOLDERS:
        if (folder / name).is_dir():
            yield from _below(folder / name)


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if _LEFT_OUT.fullmatch(path.name):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)
        else:
            yield path
