"""Code of a package that the operator agreed to by its digest: imported into this process, with all that it may do.

The other way to run a package, `envs.guest`, needs no agreement. This module does not decide which is taken.
"""

import importlib
import sys
from pathlib import Path
from typing import cast

from farflung.envs.base import EnvironmentFactory
from farflung.errors import UserError


def agreed_factory(folder: Path, reference: str) -> EnvironmentFactory:
    """The factory `module:object` under `folder`, whose files were just hashed.

    Raises:
        UserError: the module is another one of the same name, or has no such object.
    """
    module_name, _, name = reference.partition(":")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # a written cache would be a file not of it
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UserError(f"{reference} cannot be imported: {error}") from error
    finally:
        sys.dont_write_bytecode = writes
    if not Path(module.__file__ or "/").is_relative_to(folder):
        raise UserError(f"module {module_name} is {module.__file__} here, not that of {folder}: remove one of them")
    if not hasattr(module, name):
        raise UserError(f"{module_name} of {folder} has no {name}")
    return cast("EnvironmentFactory", getattr(module, name))
