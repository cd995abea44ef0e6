"""Control groups in folders that look like the kernel's, and in the kernel's where they may be written."""

from pathlib import Path

import pytest

from farflung.sandbox.isolation.cgroup import Cgroup, CgroupParents, find_parents, remove_orphans
from farflung.sandbox.isolation.limits import MIB, Limits

LIMITS = Limits(memory_bytes=64 * MIB, disk_bytes=1 * MIB, max_processes=5)


def make_files(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_version_2_limits_memory_swap_and_processes(tmp_path: Path) -> None:
    make_files(tmp_path / "one", "pids.max", "memory.max", "memory.swap.max")
    group = Cgroup.make(CgroupParents(2, tmp_path, tmp_path), "one", LIMITS)
    files = {name: (tmp_path / "one" / name).read_text() for name in ("pids.max", "memory.max", "memory.swap.max")}
    assert files == {"pids.max": "9", "memory.max": str(97 * MIB), "memory.swap.max": "0"}
    assert group.folders() == [tmp_path / "one"]


def test_version_1_limits_memory_and_processes_in_two_folders(tmp_path: Path) -> None:
    memory = make_files(tmp_path / "memory" / "one", "memory.limit_in_bytes")
    pids = make_files(tmp_path / "pids" / "one", "pids.max")
    group = Cgroup.make(CgroupParents(1, tmp_path / "memory", tmp_path / "pids"), "one", LIMITS)
    assert ((memory / "memory.limit_in_bytes").read_text(), (pids / "pids.max").read_text()) == (str(97 * MIB), "9")
    assert group.folders() == [memory, pids]


@pytest.mark.parametrize(
    ("version", "name", "text"),
    [
        (2, "memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n"),
        (1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
    ],
)
def test_kills_for_memory_are_counted(tmp_path: Path, version: int, name: str, text: str) -> None:
    group = Cgroup(version, tmp_path, tmp_path)
    assert group.num_killed() == 0
    (tmp_path / name).write_text(text)
    assert group.num_killed() == 2


def test_a_folder_without_controllers_is_no_place_for_groups(tmp_path: Path) -> None:
    assert find_parents(tmp_path, "0::/\n") is None
    make_files(tmp_path / "own", "cgroup.controllers")
    (tmp_path / "own" / "cgroup.controllers").write_text("cpu io\n")
    assert find_parents(tmp_path, "0::/own\n") is None
    assert not list(tmp_path.glob("*/farflung*"))


def test_a_group_that_cannot_be_limited_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"pids\.max"):
        Cgroup.make(CgroupParents(2, tmp_path, tmp_path), "one", LIMITS)
    assert not (tmp_path / "one").exists()


def test_groups_of_dead_pools_are_removed_and_others_are_not(tmp_path: Path) -> None:
    for name in ("farflung-4194304-1", "farflung-1-1", "somebody-4194304-1"):
        (tmp_path / name).mkdir()
    remove_orphans(CgroupParents(2, tmp_path, tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"farflung-1-1", "somebody-4194304-1"}


def test_real_groups_come_and_go() -> None:
    parents = find_parents()
    if parents is None:
        pytest.skip("control groups cannot be made on this machine")
    group = Cgroup.make(parents, "farflung-test", LIMITS)
    assert all(folder.is_dir() for folder in group.folders())
    assert group.num_killed() == 0
    assert group.remove()
