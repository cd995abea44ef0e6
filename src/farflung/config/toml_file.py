"""A TOML file with the line on which each key stands, and sentences for files that cannot be read."""

import difflib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farflung.config.fields import flatten
from farflung.errors import UserError

ALIKE = 0.75
"""Share of matching characters from which a file name counts as a slip; above what `.toml` alone gives."""

_HEADER = re.compile(r"(\[\[?)\s*([\w.\"' -]+?)\s*\]\]?\s*(?:#.*)?")
_ASSIGNMENT = re.compile(r"([\w.\"'-]+(?:\s*\.\s*[\w\"'-]+)*)\s*=")
_POSITION = re.compile(r"\s*\(at line (\d+), column (\d+)\)")


@dataclass(frozen=True, kw_only=True, slots=True)
class TomlFile:
    path: Path
    tree: dict[str, Any]
    lines: dict[str, int]
    """Dotted key -> line number from 1, for sections and for keys that start a line."""

    def where(self, key: str) -> str:
        """ "path:line" of a key, of the section that holds it, or just the path."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return f"{self.path}:{self.lines[key]}" if key else str(self.path)


def read_toml(path: Path) -> TomlFile:
    """Raises `UserError` for a file that is absent, unreadable or not TOML."""
    text = _read_text(path)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(_syntax_sentence(path, text, str(error))) from error
    return TomlFile(path=path, tree=tree, lines=_key_lines(text, tree))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(_missing_sentence(path)) from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder, not a TOML file{_toml_files_in(path)}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file in UTF-8 (byte {error.start}), so it cannot be TOML") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


def _missing_sentence(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"there is no file {path}: its folder {folder} does not exist"
    alike = difflib.get_close_matches(path.name, [entry.name for entry in folder.iterdir()], n=1, cutoff=ALIKE)
    if alike:
        return f"there is no file {path}; did you mean {folder / alike[0]}?"
    return f"there is no file {path}{_toml_files_in(folder)}"


def _toml_files_in(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.glob("*.toml"))
    return f"; {folder} holds {', '.join(names[:5])}" if names else ""


def _syntax_sentence(path: Path, text: str, message: str) -> str:
    position = _POSITION.search(message)
    problem = _POSITION.sub("", message)
    problem = problem[:1].lower() + problem[1:]
    if position is None:
        return f"{path} is not valid TOML: {problem}"
    number = int(position[1])
    line = text.splitlines()[number - 1].strip()
    return f"{path}:{number} is not valid TOML: {problem} at column {position[2]}: {line}"


def _key_lines(text: str, tree: dict[str, Any]) -> dict[str, int]:
    """A scan of line starts, kept where it agrees with the parsed tree (so strings over several lines do no harm)."""
    existing = _all_keys(tree)
    lines: dict[str, int] = {}
    num_tables: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line.strip()):
            name = _bare(header[2])
            if header[1] == "[[":
                index = num_tables[name] = num_tables.get(name, -1) + 1
                name = f"{name}.{index}"
            if name in existing:
                section = f"{name}."
                lines.setdefault(name, number)
        elif assignment := _ASSIGNMENT.match(line.strip()):
            name = section + _bare(assignment[1])
            if name in existing:
                lines.setdefault(name, number)
    return lines


def _all_keys(tree: dict[str, Any]) -> set[str]:
    """Dotted names of leaves and of every section above them."""
    names = set(flatten(tree))
    for name in list(names):
        while name := name.rpartition(".")[0]:
            names.add(name)
    return names


def _bare(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))
