"""Which names of the program a test file gets without asking for each: those that mean nothing else in it.

`from solution import *` must not replace `abs`, or the `isclose` that the file has imported two lines before.
"""

from __future__ import annotations

import builtins
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def offered(names: Iterable[str], entry: str | None, source: str, module: str) -> list[str]:
    """Those of `names` that the tests in `source` get.

    Args:
        entry: always offered.
        module: what the tests import the program as.
    """
    taken = set(_imported(source, module)) if "*" in source else set()
    return [
        name
        for name in names
        if name == entry or not (name.startswith("__") or name in taken or hasattr(builtins, name))
    ]


def _imported(source: str, module: str) -> Iterator[str]:
    """Names that a file imports from elsewhere."""
    import ast

    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # told when it is compiled
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module != module:
            for alias in node.names:
                yield from _public(node.module or "") if alias.name == "*" else [alias.asname or alias.name]
        elif isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)


def _public(module: str) -> list[str]:
    """What `from module import *` gives, as far as it can be imported."""
    try:
        __import__(module)
    except (ImportError, ValueError):
        return []  # told when the tests import it
    names = vars(sys.modules[module])
    return list(names.get("__all__") or [name for name in names if not name.startswith("_")])
