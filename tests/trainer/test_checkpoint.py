import errno
import multiprocessing
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_builder import checkpoint, save_for_ever
from farflung.errors import OurFault
from farflung.trainer import checkpoint as checkpoint_module
from farflung.trainer.checkpoint import FILES, Checkpoint, Checkpoints
from tiny_pool import tiny_policy


def assert_is(found: Checkpoint | None, version: int) -> None:
    """Every value of that version's checkpoint, bit for bit."""
    expected = checkpoint(version)
    assert found is not None
    assert (found.progress, found.publication) == (expected.progress, expected.publication)
    for mine, theirs in ((found.masters, expected.masters), (found.optimizer, expected.optimizer)):
        assert mine.keys() == theirs.keys()
        for name in mine:
            assert torch.equal(mine[name], theirs[name]), name


def folder_of(root: Path, version: int) -> Path:
    return root / f"v{version:08d}"


def versions_in(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("v*"))


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    assert checkpoints.load_newest() is None
    assert checkpoints.load_best() is None
    checkpoints.save(checkpoint(3))
    assert_is(checkpoints.load_newest(), 3)


def test_an_optimizer_that_has_seen_nothing_is_saved_too(tmp_path: Path) -> None:
    policy, checkpoints = tiny_policy(), Checkpoints(tmp_path, keep=1)
    made = checkpoint(0)
    checkpoints.save(
        Checkpoint(
            progress=made.progress,
            publication=made.publication,
            masters=policy.masters_state(),
            optimizer=policy.optimizer_state(),
        )
    )
    found = checkpoints.load_newest()
    assert found is not None
    assert found.optimizer == {}
    other = tiny_policy(seed=5)
    other.restore(found.masters, found.optimizer)
    assert all(torch.equal(value, other.masters_state()[name]) for name, value in policy.masters_state().items())


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_ones_are_kept_and_the_best_one(tmp_path: Path, keep: int) -> None:
    checkpoints = Checkpoints(tmp_path, keep)
    for version in range(8):
        checkpoints.save(checkpoint(version), is_best=version in (0, 2))
    expected = sorted({2, *range(8 - keep, 8)})
    assert versions_in(tmp_path) == [folder_of(tmp_path, version).name for version in expected]
    assert_is(checkpoints.load_newest(), 7)
    assert_is(checkpoints.load_best(), 2)


def test_a_better_one_takes_the_place_of_the_best(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    for version in range(4):
        checkpoints.save(checkpoint(version), is_best=version < 3)
        assert_is(Checkpoints(tmp_path, keep=1).load_best(), min(version, 2))
    assert versions_in(tmp_path) == ["v00000002", "v00000003"]


def test_a_version_that_is_saved_again_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(checkpoint(1))
    (folder_of(tmp_path, 1) / "progress.json").write_bytes(b"damaged")
    checkpoints.save(checkpoint(1))
    assert_is(checkpoints.load_newest(), 1)


def test_an_unfinished_one_is_never_chosen_and_goes_with_the_next_save(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(checkpoint(1))
    checkpoints.save(checkpoint(2))
    folder_of(tmp_path, 2).rename(tmp_path / "v00000002.tmp")  # as if killed before the rename
    assert checkpoints.load_newest() is None
    checkpoints.save(checkpoint(3))
    assert versions_in(tmp_path) == ["v00000003"]


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "short":
        path.write_bytes(data[:-1])
    elif how == "flipped":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.parametrize("how", ["missing", "empty", "short", "flipped"])
@pytest.mark.parametrize("name", [*FILES, "complete.json"])
def test_a_damaged_one_is_passed_over_for_the_one_before(tmp_path: Path, name: str, how: str) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(checkpoint(1))
    checkpoints.save(checkpoint(2), is_best=True)
    spoil(folder_of(tmp_path, 2) / name, how)
    assert_is(checkpoints.load_newest(), 1)
    assert_is(checkpoints.load_best(), 1)
    checkpoints.save(checkpoint(3))
    assert_is(checkpoints.load_newest(), 3)


@pytest.mark.parametrize("content", [b"[]", b"null", b'{"progress.json": 3}', b'{"progress.json": {}}', b"\xff", b"{"])
def test_a_listing_that_is_none_is_damage(tmp_path: Path, content: bytes) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(checkpoint(1))
    (folder_of(tmp_path, 1) / "complete.json").write_bytes(content)
    assert checkpoints.load_newest() is None


def test_a_listed_file_of_another_kind_is_damage(tmp_path: Path) -> None:
    """Hashes agree, but it is no checkpoint of this program."""
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(checkpoint(1))
    folder = folder_of(tmp_path, 1)
    (folder / "progress.json").write_bytes(b"{}")
    digest = checkpoint_module.sha256_hex(b"{}")
    listing = (folder / "complete.json").read_text()
    start = listing.index('"progress.json":') + len('"progress.json":')
    end = listing.index("}", start) + 1
    (folder / "complete.json").write_text(f'{listing[:start]}{{"num_bytes":2,"sha256":"{digest}"}}{listing[end:]}')
    assert checkpoints.load_newest() is None


@pytest.mark.parametrize("failing_sync", range(7))
def test_a_full_disk_is_our_fault_and_leaves_the_old_one_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_sync: int
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(checkpoint(1), is_best=True)
    num_syncs = 0
    sync = os.fsync

    def refuse(fd: int) -> None:
        nonlocal num_syncs
        num_syncs += 1
        if num_syncs > failing_sync:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(fd)

    monkeypatch.setattr(checkpoint_module.os, "fsync", refuse)
    with pytest.raises(OurFault, match=r"cannot save checkpoint .*v00000002: No space left on device"):
        checkpoints.save(checkpoint(2), is_best=True)
    monkeypatch.undo()
    assert not list(tmp_path.glob("*.tmp*")) or failing_sync == 6  # the marker's, which the next save overwrites
    found = checkpoints.load_newest()
    assert found is not None
    assert_is(found, 2 if (folder_of(tmp_path, 2)).exists() else 1)
    assert_is(checkpoints.load_best(), 1)
    checkpoints.save(checkpoint(2), is_best=True)
    assert_is(checkpoints.load_best(), 2)


def test_killed_at_any_moment_of_a_save_the_newest_whole_one_is_found(tmp_path: Path) -> None:
    """Case C2: keep = 1, killed with -9 twenty times."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["farflung.trainer.checkpoint"])  # imports torch once
    dice = random.Random(0)
    version, num_cut_short = -1, 0
    for _ in range(20):
        receiver, sender = context.Pipe(duplex=False)
        child: Any = context.Process(target=save_for_ever, args=(tmp_path, 1, version + 1, sender.send), daemon=True)
        child.start()
        assert receiver.poll(60)
        time.sleep(dice.uniform(0, 0.03))
        child.kill()
        child.join()
        sender.close()
        while receiver.poll():
            try:
                version = receiver.recv()
            except EOFError:
                break
        num_cut_short += any(tmp_path.glob("*.tmp"))
        checkpoints = Checkpoints(tmp_path, keep=1)
        found = checkpoints.load_newest()
        assert found is not None
        assert version <= found.progress.policy_version <= version + 1
        version = found.progress.policy_version
        assert_is(found, version)
        best = checkpoints.load_best()
        assert best is not None
        assert best.progress.policy_version % 3 == 0
    assert num_cut_short > 3, "no save was hit: the test has lost its meaning"


def test_c3_a_reader_whose_checkpoint_is_cleaned_away_takes_the_one_that_took_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case C3: a slow reader of step n while n + 1 is saved and n is removed, at each file of n."""
    load = checkpoint_module._load
    for file in FILES:
        folder = tmp_path / file
        checkpoints = Checkpoints(folder, keep=1)
        checkpoints.save(checkpoint(1))
        is_first = True

        def slow(path: Path, file: str = file, checkpoints: Checkpoints = checkpoints) -> Checkpoint:
            nonlocal is_first
            if is_first:
                is_first = False
                (path / file).unlink()  # so far has the cleaning come when the reader arrives there
                checkpoints.save(checkpoint(2))
            return load(path)

        monkeypatch.setattr(checkpoint_module, "_load", slow)
        assert_is(Checkpoints(folder, keep=1).load_newest(), 2)
        assert not is_first
        monkeypatch.undo()


def test_a_version_that_is_saved_again_is_there_at_every_moment(tmp_path: Path) -> None:
    """C2 for the only one that there is: killed between the two renames."""
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(checkpoint(4))
    folder_of(tmp_path, 4).rename(tmp_path / "v00000004.old")
    assert_is(checkpoints.load_newest(), 4)
    checkpoints.save(checkpoint(5))
    assert_is(checkpoints.load_newest(), 5)
    assert versions_in(tmp_path) == ["v00000005"]


def test_the_new_one_is_chosen_over_what_was_put_aside(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(checkpoint(3))
    folder_of(tmp_path, 3).rename(tmp_path / "v00000004.old")
    aside = tmp_path.with_name("aside")
    shutil.copytree(tmp_path / "v00000004.old", aside)
    checkpoints.save(checkpoint(4))
    assert versions_in(tmp_path) == ["v00000004"]
    shutil.copytree(aside, tmp_path / "v00000004.old")  # as if killed before it was cleaned away
    assert_is(checkpoints.load_newest(), 4)


def test_the_last_good_one_is_kept_however_few_are_to_be_kept(tmp_path: Path) -> None:
    """A save that fails removes nothing: what is cleaned away has a whole successor."""
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(checkpoint(1))
    (tmp_path / "v00000002.tmp").write_text("in the way")  # no folder can be made here
    with pytest.raises(OurFault):
        checkpoints.save(checkpoint(2))
    assert_is(checkpoints.load_newest(), 1)
