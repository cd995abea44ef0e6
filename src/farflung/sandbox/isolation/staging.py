"""The folder that becomes the root of every sandbox: interpreter, libraries, a few devices, nothing else.

Built once for each keeper, in a mount namespace of its own, read-only. Packages of the interpreter are covered: an
installed data set may hold the answers.
"""

import compileall
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from farflung.sandbox.isolation.layout import DEVICES, SOURCE, WORK
from farflung.sandbox.isolation.syscalls import (
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    mount,
)

_PACKAGE = Path(__file__).parents[2]
_SHIPPED = ("__init__.py", "errors.py", "sandbox/__init__.py", "sandbox/isolation", "sandbox/code/__init__.py")
_SHIPPED_INSIDE = "sandbox/code/inside"
_KEPT_FLAGS = ((os.ST_NOEXEC, 8), (os.ST_NOATIME, 1 << 10), (os.ST_NODIRATIME, 1 << 11), (os.ST_RELATIME, 1 << 21))


def stage(root: str, packages: Sequence[str], mounts: Sequence[Sequence[str]]) -> None:
    """Fill `root`, an empty folder; the caller has a mount namespace of its own.

    Args:
        packages: further folders that programs may import from, at the same path.
        mounts: further folders as (path outside, path inside).

    Raises:
        OSError: a mount was refused.
    """
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", MS_NOSUID, "mode=755,size=16m")
    for path in [*_system_paths(), *packages]:
        _bind(path, root)
    for path, inside in mounts:
        _bind(os.path.realpath(path), root, inside)
    for folder in _package_folders(root):
        if not any(f"{root}{package}".startswith(folder) for package in packages):
            mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "mode=755,size=4k")
    _devices(root)
    _own_source(root)
    os.mkdir(f"{root}{WORK}")
    mount("none", root, flags=MS_REMOUNT | MS_RDONLY | MS_NOSUID, options="mode=755,size=16m")


def _system_paths() -> Iterator[str]:
    """What an interpreter needs to run, outermost first."""
    candidates = ["/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/lib", "/lib64", "/etc/ld.so.cache"]
    interpreter = os.path.realpath(sys.executable)
    candidates += [f"{sys.base_prefix}/lib", os.path.dirname(os.path.realpath(os.__file__)), interpreter]
    seen: list[str] = []
    for path in candidates:
        if os.path.exists(path) and not any(path == old or path.startswith(f"{old}/") for old in seen):
            seen.append(path)
            yield path


def _bind(path: str, root: str, inside: str | None = None) -> None:
    """A file or folder at the same path under `root`, or at another, read-only; a symbolic link is made again."""
    target = f"{root}{path if inside is None else inside}"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        Path(target).touch()
    mount(path, target, flags=MS_BIND)
    kept = os.statvfs(target).f_flag
    flags = sum(flag for seen, flag in _KEPT_FLAGS if kept & seen)
    mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | flags)


def _package_folders(root: str) -> Iterator[str]:
    for base in {f"{root}/usr/lib", f"{root}/usr/local/lib", f"{root}{os.path.realpath(sys.base_prefix)}/lib"}:
        for name in ("site-packages", "dist-packages"):
            yield from (str(path) for path in Path(base).glob(f"python3*/{name}") if path.is_dir())


def _devices(root: str) -> None:
    os.mkdir(f"{root}/dev")
    for name in DEVICES:
        Path(f"{root}/dev/{name}").touch()
        mount(f"/dev/{name}", f"{root}/dev/{name}", flags=MS_BIND)


def _own_source(root: str) -> None:
    target = Path(f"{root}{SOURCE}/farflung")
    for name in (*_SHIPPED, _SHIPPED_INSIDE):
        source = _PACKAGE / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / name)
    compileall.compile_dir(f"{root}{SOURCE}", quiet=2)  # once, and not in every sandbox
    for folder, _, names in os.walk(f"{root}{SOURCE}"):
        os.chmod(folder, 0o755)  # noqa: S103 - nothing secret; another user reads it
        for name in names:
            os.chmod(f"{folder}/{name}", 0o644)
