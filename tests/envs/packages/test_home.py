"""Installed packages: the lock, changed files, names, agreement. Threat E1."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from farflung.envs import registry
from farflung.envs.guest import process
from farflung.envs.guest.environment import GuestEnvironment
from farflung.envs.packages.home import VARIABLE, Home, default_folder
from farflung.envs.packages.names import require_free
from farflung.envs.packages.project import Package, read_project
from farflung.envs.registry import (
    BUILT_IN,
    load_environment,
    load_for_grading,
    load_for_pool,
    names_taken,
    package_digest_of,
)
from farflung.errors import UserError
from farflung.sandbox.code.machine import REFUSAL
from farflung.wire.pool import EnvironmentSpec

from .conftest import MODULE, PROJECT, MakeProject

INDEX = "file:///index"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "home"))
    folder = default_folder()
    assert folder is not None
    return Home(folder)


@pytest.fixture
def package(make_project: MakeProject) -> Package:
    return read_project(make_project())


def test_an_installed_environment_loads_by_name_in_a_child(home: Home, package: Package) -> None:
    home.install(package, INDEX, names_taken)
    env = load_environment("count-sheep", 3, {})
    assert isinstance(env, GuestEnvironment)
    try:
        task = env.task("train", 0)
        assert env.grade(task, task.answer).reward == 1.0
        assert "count_sheep" not in sys.modules
    finally:
        env.close()
    home.source_of(home.lock().packages[0])  # nothing was written beside the files


def test_an_unknown_name_is_answered_with_installed_ones_too(home: Home, package: Package) -> None:
    home.install(package, INDEX, names_taken)
    with pytest.raises(UserError, match="did you mean count-sheep"):
        load_environment("count-shep", 0, {})


def changed(files: Path) -> None:
    (files / "src" / "count_sheep.py").write_text(MODULE + "import os\n")


def same_length(files: Path) -> None:
    (files / "src" / "count_sheep.py").write_text(MODULE.replace("50", "51"))


def added(files: Path) -> None:
    (files / "src" / "sitecustomize.py").write_text("import os\n")


def cached(files: Path) -> None:
    (files / "src" / "__pycache__").mkdir()
    (files / "src" / "__pycache__" / "count_sheep.cpython-311.pyc").write_bytes(b"x")


def missing(files: Path) -> None:
    (files / "README.md").unlink()


def linked(files: Path) -> None:
    path = files / "src" / "count_sheep.py"
    path.rename(files.parent / "elsewhere.py")
    path.symlink_to(files.parent / "elsewhere.py")


def manifest(files: Path) -> None:
    path = files.parent / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"is_reproducible":true', b'"is_reproducible":false'))


@pytest.mark.parametrize("change", [changed, same_length, added, cached, missing, linked, manifest])
def test_files_that_changed_after_they_were_hashed_are_not_loaded(home: Home, package: Package, change: object) -> None:
    entry = home.install(package, INDEX, names_taken)
    assert callable(change)
    change(home.files_of(entry))
    with pytest.raises(UserError, match="is not what was installed"):
        load_environment("count-sheep", 0, {})


def test_installing_again_mends_changed_files(home: Home, package: Package) -> None:
    entry = home.install(package, INDEX, names_taken)
    added(home.files_of(entry))
    home.install(package, INDEX, names_taken)
    assert home.source_of(entry).name == "src"


def test_a_version_that_once_had_another_digest_is_refused_even_after_removal(home: Home, package: Package) -> None:
    home.install(package, INDEX, names_taken)
    home.remove("count-sheep")
    other = Package(manifest=replace(package.manifest, summary="Other."), files=package.files)
    with pytest.raises(UserError, match="a version never changes, so do not trust this index"):
        home.install(other, INDEX, names_taken)


def test_another_index_does_not_replace_a_package(home: Home, package: Package) -> None:
    home.install(package, INDEX, names_taken)
    with pytest.raises(UserError, match="env remove"):
        home.install(package, "s3://mallory/index", names_taken)


def test_a_newer_version_takes_the_place_of_the_older(home: Home, package: Package, make_project: MakeProject) -> None:
    home.install(package, INDEX, names_taken)
    newer = read_project(make_project("newer", **{"pyproject.toml": PROJECT.replace("0.1.0", "0.2.0")}))
    home.install(newer, INDEX, names_taken)
    assert [each.version for each in home.lock().packages] == ["0.2.0"]


@pytest.mark.parametrize(
    "name", [*BUILT_IN, "mixture", "s0rt-digits", "sortdigits", "gsmbk-100", "farflung", "reasoning-gym", "humanevai"]
)
def test_names_of_built_ins_and_what_looks_like_them_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"is taken|would be taken for"):
        require_free([name], names_taken())


def test_a_package_cannot_bring_an_environment_under_a_taken_name(home: Home, package: Package) -> None:
    (environment,) = package.manifest.environments
    squatter = replace(package.manifest, environments=(replace(environment, name="sort-digits"),))
    with pytest.raises(UserError, match='"sort-digits" is taken'):
        home.install(Package(manifest=squatter, files=package.files), INDEX, names_taken)
    assert not home.lock().packages


def test_a_package_that_calls_itself_otherwise_inside_is_not_loaded(home: Home, package: Package) -> None:
    (environment,) = package.manifest.environments
    posing = replace(package.manifest, environments=(replace(environment, name="other-sheep"),))
    home.install(Package(manifest=posing, files=package.files), INDEX, names_taken)
    with pytest.raises(UserError, match="calls itself 'count-sheep', not other-sheep"):
        load_environment("other-sheep", 0, {})


def no_walls(*args: object, **options: object) -> None:
    raise UserError(REFUSAL.format(reasons="bubblewrap: no"))


def test_without_walls_nothing_is_loaded_unless_the_operator_agreed_to_the_digest(
    home: Home, package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "CodePool", no_walls)
    digest = package.manifest.digest()
    home.install(package, INDEX, names_taken)
    with pytest.raises(UserError, match=f"cannot be shut in on this machine .*--trust {digest}"):
        load_environment("count-sheep", 0, {})
    with pytest.raises(UserError, match=r"you agreed to 0000.*read it first"):
        home.install(package, INDEX, names_taken, agreed="0" * 64)

    entry = home.install(package, INDEX, names_taken, agreed=digest)
    try:
        env = load_environment("count-sheep", 0, {})
        assert type(env).__name__ == "SimpleEnvironment"
        assert "count_sheep" in sys.modules
        home.source_of(entry)  # no cache was written beside the files
    finally:
        sys.modules.pop("count_sheep", None)
        sys.path.remove(str(home.source_of(entry)))


def test_an_agreement_holds_for_one_digest(home: Home, package: Package, make_project: MakeProject) -> None:
    home.install(package, INDEX, names_taken, agreed=package.manifest.digest())
    newer = read_project(make_project("newer", **{"pyproject.toml": PROJECT.replace("0.1.0", "0.2.0")}))
    home.install(newer, INDEX, names_taken)
    assert [each.is_agreed for each in home.lock().packages] == [False]


def test_an_agreed_module_of_another_place_is_not_taken_for_it(
    home: Home, make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = PROJECT.replace("count_sheep:", "json:").replace("MIT", "ISC")
    package = read_project(make_project(**{"pyproject.toml": project}))
    home.install(package, INDEX, names_taken, agreed=package.manifest.digest())
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(UserError, match=r"module json is .*remove one of them"):
        load_environment("count-sheep", 0, {})


@pytest.mark.parametrize("content", ["", "{", '{"packages": [1]}', "\xff"])
def test_a_damaged_lock_fails_closed(home: Home, package: Package, content: str) -> None:
    home.install(package, INDEX, names_taken)
    (home.folder / "lock.json").write_text(content, encoding="latin-1")
    with pytest.raises(UserError, match="cannot be read"):
        load_environment("count-sheep", 0, {})


def test_a_user_without_a_home_has_nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "default_folder", lambda: None)
    with pytest.raises(UserError, match="unknown environment"):
        load_environment("count-sheep", 0, {})


def spec_of(environment: str, package: str) -> EnvironmentSpec:
    return EnvironmentSpec(name=environment, num_tasks=45, package=package)


def test_a_pool_is_played_with_the_package_that_its_rules_name_and_no_other(home: Home, package: Package) -> None:
    digest = package.manifest.digest()
    with pytest.raises(UserError, match=f"is package {digest}, and here it is none of a package.*--digest {digest}"):
        load_for_pool(spec_of("count-sheep", digest))
    home.install(package, INDEX, names_taken)
    assert package_digest_of("count-sheep") == digest
    for other in ("", "0" * 64):
        with pytest.raises(UserError, match=f"here it is package {digest}: install what the pool was made with"):
            load_for_pool(spec_of("count-sheep", other))
    env = load_for_grading(spec_of("count-sheep", digest))
    assert isinstance(env, GuestEnvironment)
    env.close()


def test_what_is_built_in_is_of_no_package(home: Home) -> None:
    assert package_digest_of("sort-digits") == ""
    assert load_for_pool(spec_of("sort-digits", "")).name == "sort-digits"
