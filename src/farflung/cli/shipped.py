"""Configurations that come with the package, by name."""

import difflib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from farflung.errors import UserError


def shipped_names() -> list[str]:
    """Names as `farflung run NAME` takes them."""
    return sorted(entry.name.removesuffix(".toml") for entry in _folder().iterdir() if entry.name.endswith(".toml"))


def shipped_path(name: str) -> Path:
    """Where the configuration called `name` lies. Raises `UserError` for an unknown name."""
    if name not in shipped_names():
        close = difflib.get_close_matches(name, shipped_names(), n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise UserError(
            f"{name} is neither a file nor a configuration that comes with farflung; {meant}"
            f"those are {', '.join(shipped_names())}"
        )
    return Path(str(_folder() / f"{name}.toml"))


def resolve_config(text: str) -> Path:
    """A file if `text` looks like one or is one, else the shipped configuration of that name."""
    path = Path(text)
    looks_like_a_file = path.suffix == ".toml" or len(path.parts) > 1 or path.is_file()
    return path if looks_like_a_file else shipped_path(text)


def _folder() -> Traversable:
    return resources.files("farflung.cli").joinpath("configs")
