"""Project folders as packages."""

import re
from pathlib import Path

import pytest

from farflung.envs.packages.project import read_project
from farflung.errors import UserError

from .conftest import PROJECT, MakeProject


def test_a_project_becomes_a_manifest_without_running_anything(make_project: MakeProject) -> None:
    folder = make_project(
        **{
            "setup.py": "raise SystemExit('ran')",
            "src/count_sheep.py": "raise SystemExit('ran')",
            "src/__pycache__/x.pyc": "x",
            "src/.secret": "x",
            "tests/test_sheep.py": "",
            ".env": "KEY=1",
            "notes.txt": "x",
        }
    )
    manifest = read_project(folder).manifest
    assert [file.path for file in manifest.files] == [
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/count_sheep.py",
        "tests/test_sheep.py",
    ]
    assert (manifest.name, manifest.version, manifest.licence) == ("count-sheep", "0.1.0", "MIT")
    assert (manifest.verifier, manifest.sandbox, manifest.is_reproducible) == ("function", "none", True)
    assert manifest.requires == ("numpy",)
    assert [(each.name, each.reference) for each in manifest.environments] == [
        ("count-sheep", "count_sheep:environment")
    ]


def test_what_the_author_declares_is_in_the_manifest(make_project: MakeProject) -> None:
    declared = PROJECT + '[tool.farflung]\nverifier = "program"\nsandbox = "code"\nreproducible = false\n'
    manifest = read_project(make_project(**{"pyproject.toml": declared})).manifest
    assert (manifest.verifier, manifest.sandbox, manifest.is_reproducible) == ("program", "code", False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"README.md": None}, "has no README.md"),
        ({"LICENSE": None}, "has no LICENSE"),
        ({"pyproject.toml": None}, "cannot be used.*env new"),
        ({"pyproject.toml": "name ="}, "cannot be used"),
        ({"pyproject.toml": "tool = 3"}, "cannot be used"),
        ({"pyproject.toml": PROJECT.replace("farflung.environments", "other")}, "name an environment there"),
        ({"pyproject.toml": PROJECT.replace("0.1.0", "0.1.0rc1")}, "version '0.1.0rc1'"),
        ({"pyproject.toml": PROJECT.replace('license = "MIT"\n', "")}, "licence is ''"),
        ({"pyproject.toml": PROJECT + "[tool.farflung]\nverfier = 1\n"}, "verfier"),
        ({"pyproject.toml": PROJECT + '[tool.farflung]\nsandbox = "sometimes"\n'}, "sometimes"),
        ({"src/native.so": "x"}, "a package holds"),
        ({"src/evil.pth": "import os"}, "a package holds"),
    ],
)
def test_a_project_that_cannot_be_a_package_is_told_why(
    make_project: MakeProject, changes: dict[str, str | None], message: str
) -> None:
    with pytest.raises(UserError, match=re.compile(message, re.DOTALL)):
        read_project(make_project(**changes))


def test_a_link_out_of_the_folder_is_refused(make_project: MakeProject, tmp_path: Path) -> None:
    folder = make_project()
    (tmp_path / "secret.txt").write_text("key")
    (folder / "src" / "data.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(UserError, match="not a plain file"):
        read_project(folder)
