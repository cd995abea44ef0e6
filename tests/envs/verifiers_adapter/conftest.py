"""Environments of the library, installed for the tests of this folder."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from packages_of_verifiers import install


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that modules and their metadata are found in."""
    folder = tmp_path_factory.mktemp("verifiers") / "site-packages"
    folder.mkdir()
    install(folder)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
