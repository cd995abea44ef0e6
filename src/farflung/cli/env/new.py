"""`farflung env new NAME`: a project that installs, passes its tests and can be trained on as it is."""

import sys
import time
from argparse import Namespace
from importlib import resources
from pathlib import Path

from farflung.envs.packages.names import require_free
from farflung.envs.registry import names_taken
from farflung.errors import UserError
from farflung.wire.package import require_package_name

FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    "LICENSE": "LICENSE.txt",
    "run.toml": "run.toml.txt",
    "src/@MODULE@.py": "module.py.txt",
    "tests/test_@MODULE@.py": "test.py.txt",
}
"""Path in the project -> file of `template/`."""


def run_new(arguments: Namespace) -> int:
    """Write the project. Raises `UserError` for a name that no package may have, or a folder that is there."""
    folder = Path(arguments.dir or arguments.name)
    write_project(arguments.name, folder)
    sys.stdout.write(
        f"{folder}/src/{module_of(arguments.name)}.py is the environment; next:\n"
        f"  farflung env test {_word(folder)}\n  farflung env try {_word(folder)}\n"
    )
    return 0


def write_project(name: str, folder: Path) -> None:
    """As `run_new`, without a word."""
    try:
        require_package_name(name)
    except ValueError as error:
        raise UserError(f"{error}; for example count-letters") from error
    if name[0].isdigit():
        raise UserError(f'the name "{name}" begins with a digit, and a module of Python cannot: begin with a letter')
    require_free([name], names_taken())
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already: choose another with --dir")
    values = {"@NAME@": name, "@MODULE@": module_of(name), "@YEAR@": str(time.gmtime().tm_year)}
    for path, template in FILES.items():
        text = (resources.files("farflung.cli.env") / "template" / template).read_text(encoding="utf-8")
        target = folder / _filled(path, values)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_filled(text, values), encoding="utf-8")


def module_of(name: str) -> str:
    """The module's name."""
    return name.replace("-", "_")


def _filled(text: str, values: dict[str, str]) -> str:
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text


def _word(folder: Path) -> str:
    """As the command line tells it from a name."""
    return str(folder) if folder.is_absolute() or len(folder.parts) > 1 else f"./{folder}"
