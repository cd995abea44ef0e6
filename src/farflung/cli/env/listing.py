"""`farflung env list`: what there is on this machine, or in an index."""

import json
import re
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from inspect import getdoc

from rich.console import Console

from farflung.cli.env.exchange import index_to_read
from farflung.cli.env.tables import table
from farflung.envs import reasoning_gym, reasoning_gym_sets
from farflung.envs.budgeted import PREFIX as BUDGETED
from farflung.envs.budgeted import Budgeted
from farflung.envs.mixture import Mixture
from farflung.envs.registry import BUILT_IN, entry_point_names, home_folder

_SENTENCE = re.compile(r"(?:[^`.]|`[^`]*`|\.(?=\S))*")
"""Up to the first full stop that is not in quoted code."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    name: str
    version: str
    origin: str
    summary: str


def run_list(arguments: Namespace) -> int:
    """Nothing of a package is run."""
    rows = list(in_index(arguments.index) if arguments.index else here(with_all=arguments.all))
    if arguments.json:
        sys.stdout.write(f"{json.dumps([asdict(row) for row in rows])}\n")
        return 0
    Console(file=sys.stdout, highlight=False).print(
        table(("name", "version", "from", ""), ((row.name, row.version, row.origin, row.summary) for row in rows))
    )
    return 0


def here(*, with_all: bool) -> Iterator[Listed]:
    """Built in, of reasoning-gym, of installed distributions, of packages."""
    ours = version("farflung")
    for name, factory in {**BUILT_IN, Mixture.name: Mixture, f"{BUDGETED}...": Budgeted}.items():
        yield Listed(name=name, version=ours, origin="built in", summary=_summary(factory))
    yield from _reasoning_gym(with_all=with_all)
    for name, point in sorted(entry_point_names().items()):
        found = point.dist
        summary = (found.metadata["Summary"] or "") if found else ""
        yield Listed(name=name, version=found.version if found else "", origin="pip install", summary=summary)
    home = home_folder()
    for package in home.lock().packages if home else ():
        origin = f"{package.index}{', agreed: no walls' if package.is_agreed else ''}"
        for name in sorted(package.environments):
            yield Listed(name=name, version=package.version, origin=origin, summary=f"package {package.name}")


def in_index(url: str) -> Iterator[Listed]:
    """The newest version of every package."""
    index = index_to_read(url)
    for name in index.names():
        versions = index.versions(name)
        if versions:
            manifest = index.manifest(name, versions[-1])
            yield Listed(name=name, version=versions[-1], origin=url, summary=manifest.summary)


def _reasoning_gym(*, with_all: bool) -> Iterator[Listed]:
    if find_spec("reasoning_gym") is None:
        return
    known = {name for names in reasoning_gym_sets.categories().values() for name in names}
    release, names = version("reasoning-gym"), sorted(known - set(reasoning_gym_sets.REFUSED))
    if with_all:
        for name in names:
            yield Listed(name=f"{reasoning_gym.PREFIX}{name}", version=release, origin="reasoning-gym", summary="")
        return
    summary = f"{len(names)} data sets; `farflung env list --all` names them"
    yield Listed(name=f"{reasoning_gym.PREFIX}...", version=release, origin="reasoning-gym", summary=summary)


def _summary(factory: object) -> str:
    """First sentence of the module that it is from."""
    module = getattr(factory, "__module__", "")
    text = getdoc(import_module(module)) or ""
    found = _SENTENCE.match(text.partition("\n\n")[0].replace("\n", " "))
    return found[0] if found else ""
