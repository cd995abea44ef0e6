"""The chain of publications against a running coordinator, and the four ways in which a checkpoint relates to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.api.patience import Patience
from farflung.broadcast.fetch import ChunkCache, PolicyFetcher
from farflung.broadcast.follow import PolicyFollower
from farflung.errors import Transient, UserError
from farflung.identity.keys import new_key
from farflung.model.weights import from_safetensors_bytes
from farflung.trainer import chain
from farflung.trainer.policy import Policy
from farflung.trainer.publisher import Publisher
from farflung.wire.manifest import Publication, policy_digest
from farflung.wire.node import Role
from running_pool import TRAINER, check_history, coordinator, publications
from tiny_pool import description, pool_spec, tiny_policy

POOL = pool_spec()


@asynccontextmanager
async def trainers_client(folder: Path) -> AsyncIterator[CoordinatorClient]:
    async with coordinator(folder, POOL) as url, CoordinatorClient(url, node="trainer", role=Role.TRAINER) as client:
        yield client


def a_publisher(
    client: CoordinatorClient, *, chunk_bytes: int = 1024, longest_s: float = 5.0, **rest: Any
) -> Publisher:
    patience, files = Patience(asyncio.Event(), longest_s), description().policy_files
    return Publisher(client, patience, POOL, files, chunk_bytes, **({"key": TRAINER} | rest))


def prepared(publisher: Publisher, policy: Policy | None = None, *, now_ms: int = 5) -> Any:
    version = publisher.policy_version + 1
    return publisher.prepare(
        policy or tiny_policy(version),
        optimizer_step=version,
        now_ms=now_ms,
        items=() if version else None,
        drops=(),
    )


async def announce(publisher: Publisher, policy: Policy | None = None) -> Publication:
    publication, files = prepared(publisher, policy)
    await publisher.send(publication, files)
    return publication


async def test_versions_are_consecutive_and_linked_and_hold_the_policy(tmp_path: Path) -> None:
    async with trainers_client(tmp_path) as client:
        publisher = a_publisher(client)
        assert publisher.policy_version == -1
        sent = [await announce(publisher) for _ in range(3)]
        manifest = await client.latest_manifest()
        assert manifest == sent[2].manifest
        assert publisher.policy_version == 2
        weights = next(file for file in manifest.files if file.name == "model.safetensors")
        pieces = [await client.get_chunk(chunk.sha256, chunk.num_bytes) for chunk in weights.chunks]
    assert len(pieces) == -(-weights.num_bytes // 1024)
    state = from_safetensors_bytes(b"".join(pieces), max_bytes=weights.num_bytes)
    expected = tiny_policy(2).published_state()
    assert all((state[name] == value).all() and state[name].dtype == value.dtype for name, value in expected.items())
    assert [(entry.name, entry.dtype, entry.shape) for entry in manifest.tensors] == [
        (name, "BF16", tuple(value.shape)) for name, value in expected.items()
    ]
    assert manifest.policy_digest == policy_digest(manifest.files)
    assert manifest.expires_at_ms == manifest.published_at_ms + 24 * 3600 * 1000
    history = publications(tmp_path)
    assert history == sent
    check_history(history)


async def test_chunks_that_are_there_already_are_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trainers_client(tmp_path) as client:
        publisher, policy = a_publisher(client), tiny_policy()
        await announce(publisher, policy)
        sent: list[str] = []
        put_chunk = client.put_chunk

        async def counted(sha256: str, data: bytes) -> None:
            sent.append(sha256)
            await put_chunk(sha256, data)

        monkeypatch.setattr(client, "put_chunk", counted)
        await announce(publisher, policy)
        assert sent == []
        await announce(publisher, tiny_policy(9))
        assert sent


async def test_sending_twice_is_sending_once(tmp_path: Path) -> None:
    async with trainers_client(tmp_path) as client:
        publisher = a_publisher(client)
        publication, files = prepared(publisher)
        for _ in range(2):
            await publisher.send(publication, files)
        assert publisher.policy_version == 0
    assert publications(tmp_path) == [publication]


async def test_a_new_run_needs_a_coordinator_without_history(tmp_path: Path) -> None:
    async with trainers_client(tmp_path) as client:
        await a_publisher(client).begin()
        await announce(a_publisher(client))
        with pytest.raises(UserError, match="has published version 0 but the trainer has no checkpoint"):
            await a_publisher(client).begin()


async def test_resume_when_both_have_the_same_version(tmp_path: Path) -> None:
    async with trainers_client(tmp_path) as client:
        first = a_publisher(client)
        await announce(first)
        ours = await announce(first)
        again = a_publisher(client)
        await again.resume(ours, tiny_policy(1))
        assert again.last == ours
        await announce(again)
    check_history(publications(tmp_path))


@pytest.mark.parametrize("num_before", [0, 2])
async def test_resume_after_a_kill_between_checkpoint_and_publication(tmp_path: Path, num_before: int) -> None:
    """The very first version too: the coordinator has none yet."""
    async with trainers_client(tmp_path) as client:
        first = a_publisher(client)
        for _ in range(num_before):
            await announce(first)
        ours, _ = prepared(first)  # durable in the checkpoint, not sent
        again = a_publisher(client)
        await again.resume(ours, tiny_policy(num_before))
        assert again.last == ours == await client.last_publication()
        await announce(again)
    check_history(publications(tmp_path))


async def test_resume_after_a_kill_in_the_middle_of_a_publication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some chunks were sent, and the coordinator took the manifest but its answer was lost."""
    async with trainers_client(tmp_path) as client:
        first = a_publisher(client, longest_s=0.01)
        ours, files = prepared(first)
        publish = client.publish

        async def lost(publication: Publication) -> None:
            await publish(publication)
            raise Transient("the answer was lost")

        monkeypatch.setattr(client, "publish", lost)
        with pytest.raises(Transient):
            await first.send(ours, files)
        monkeypatch.undo()
        again = a_publisher(client)
        await again.resume(ours, tiny_policy(0))
        assert again.last == ours
    assert publications(tmp_path) == [ours]


async def test_resume_from_an_older_checkpoint_follows_the_newest_version(tmp_path: Path) -> None:
    async with trainers_client(tmp_path) as client:
        first = a_publisher(client)
        ours = await announce(first)
        for _ in range(3):
            newest = await announce(first)
        again = a_publisher(client)
        await again.resume(ours, tiny_policy(0))
        assert again.last == newest
        after = await announce(again, tiny_policy(0))
        assert after.manifest.policy_version == 4
    check_history(publications(tmp_path))


async def test_resume_refuses_a_checkpoint_of_another_run(tmp_path: Path) -> None:
    async with trainers_client(tmp_path) as client:
        first = a_publisher(client)
        await announce(first)
        theirs = await announce(first)
        other = replace(theirs, manifest=replace(theirs.manifest, policy_digest="00" * 32))
        with pytest.raises(UserError, match="newest version is 1 but this run's checkpoint is of version 1"):
            await a_publisher(client).resume(other, tiny_policy(1))
        ahead = replace(theirs, manifest=replace(theirs.manifest, policy_version=3))
        with pytest.raises(UserError, match="newest version is 1 but this run's checkpoint is of version 3"):
            await a_publisher(client).resume(ahead, tiny_policy(3))
        stranger, _ = prepared(first)
        with pytest.raises(UserError, match="version 2 does not continue the coordinator's version 1"):
            await a_publisher(client).resume(stranger, tiny_policy(99))
        assert await client.last_publication() == theirs


async def test_what_the_coordinator_refuses_is_raised(tmp_path: Path) -> None:
    async with trainers_client(tmp_path) as client:
        publisher = a_publisher(client)
        publication, files = prepared(publisher)
        wrong = replace(publication, manifest=replace(publication.manifest, policy_version=5))
        with pytest.raises(Refused, match="version_order"):
            await publisher.send(wrong, files)
        assert publisher.policy_version == -1


async def test_a_store_that_was_emptied_under_a_live_run_gets_all_chunks_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with trainers_client(tmp_path) as client:
        publisher = a_publisher(client)
        await announce(publisher)
        for chunk in (tmp_path / "store" / "chunks").rglob("*"):
            if chunk.is_file():
                chunk.unlink()
        second = await announce(publisher)
        assert "sending all of it again" in caplog.text
        for file in second.manifest.files:
            for chunk_entry in file.chunks:
                assert len(await client.get_chunk(chunk_entry.sha256, chunk_entry.num_bytes)) == chunk_entry.num_bytes


async def test_a_store_that_keeps_nothing_is_told_with_the_setting_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(_client: CoordinatorClient, _sha256: str, _data: bytes) -> None: ...

    async with trainers_client(tmp_path) as client:
        monkeypatch.setattr(CoordinatorClient, "put_chunk", lost)
        with pytest.raises(UserError, match=r"store loses what is written to it \(.*see that coordinator\.store_url"):
            await announce(a_publisher(client))


async def test_a_deterministic_run_does_not_go_on_behind_the_newest_version(tmp_path: Path) -> None:
    async with trainers_client(tmp_path) as client:
        publisher = a_publisher(client)
        old = await announce(publisher)
        await announce(publisher)
        fixed = pool_spec(deterministic_seed=0)
        again = Publisher(client, Patience(asyncio.Event(), 5.0), fixed, description().policy_files, 1024, key=TRAINER)
        with pytest.raises(UserError, match="published is version 1 but the newest checkpoint that can be read is of"):
            await again.resume(old, tiny_policy(0))


def moving(policy: Policy, version: int) -> Policy:
    """The same policy with a few weights moved."""
    with torch.no_grad():
        for master in policy.master_parameters().values():
            master.view(-1)[version % master.numel()] += 0.5
    policy.round_masters()
    return policy


async def test_versions_between_snapshots_are_patches_and_every_chunk_that_is_promised_is_there(tmp_path: Path) -> None:
    async with trainers_client(tmp_path) as client:
        publisher, policy = a_publisher(client, snapshot_every=3), tiny_policy()
        sent = [await announce(publisher, moving(policy, version)) for version in range(5)]
        assert [each.manifest.kind for each in sent] == ["snapshot", "patch", "patch", "snapshot", "patch"]
        for each in sent:
            for file in each.manifest.promised_files:
                for chunk in file.chunks:
                    assert await client.get_chunk(chunk.sha256, chunk.num_bytes)
        follower = PolicyFollower(
            PolicyFetcher(client.get_chunk, ChunkCache(1 << 20)), client.manifest, weights_name="model.safetensors"
        )
        fetched = await follower.fetch(sent[4].manifest)
    assert fetched.weights is not None
    assert bytes(fetched.weights.data) == policy.weights_file().data
    check_history(publications(tmp_path))


async def test_a_patch_that_would_not_be_smaller_gives_way_to_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "build_patch", lambda _base, result: result)
    async with trainers_client(tmp_path) as client:
        publisher = a_publisher(client, snapshot_every=100)
        sent = [await announce(publisher, tiny_policy(seed)) for seed in range(2)]
        assert [each.manifest.kind for each in sent] == ["snapshot", "snapshot"]
        assert sent[1].manifest.patch is None


async def test_a_trainer_that_goes_on_patches_what_the_coordinator_has(tmp_path: Path) -> None:
    async with trainers_client(tmp_path) as client:
        policy, first = tiny_policy(), a_publisher(client, snapshot_every=100)
        ours = [await announce(first, moving(policy, version)) for version in range(2)][-1]
        again = a_publisher(client, snapshot_every=100)
        await again.resume(ours, policy)
        assert (await announce(again, moving(policy, 2))).manifest.kind == "patch"
    check_history(publications(tmp_path))


async def test_a_version_that_was_durable_and_not_announced_is_announced_whole(tmp_path: Path) -> None:
    """What its patch was on is not at hand any more. A second kill right after that changes nothing."""
    async with trainers_client(tmp_path) as client:
        policy, first = tiny_policy(), a_publisher(client, snapshot_every=100)
        await announce(first, policy)
        ours, _ = prepared(first, moving(policy, 1))
        assert ours.manifest.kind == "patch"
        for _ in range(2):
            again = a_publisher(client, snapshot_every=100)
            await again.resume(ours, policy)
            assert again.last is not None
            assert again.last.manifest.kind == "snapshot"
            assert again.last.manifest.policy_digest == ours.manifest.policy_digest
        assert (await announce(again, moving(policy, 2))).manifest.kind == "patch"
    check_history(publications(tmp_path))


async def test_r2_versions_of_another_key_are_refused_and_the_person_is_told(tmp_path: Path) -> None:
    async with trainers_client(tmp_path) as client:
        await announce(a_publisher(client))
        other = a_publisher(client, key=new_key())
        other.last = await client.last_publication()
        with pytest.raises(UserError, match=r"versions of another key .*keys/trainer"):
            await announce(other)


async def test_a_coordinator_that_was_told_the_trainers_address_takes_nobody_else(tmp_path: Path) -> None:
    async with (
        coordinator(tmp_path, POOL, trainer=TRAINER.address.lower()) as url,
        CoordinatorClient(url, node="trainer", role=Role.TRAINER) as client,
    ):
        with pytest.raises(UserError, match="versions of another key"):
            await announce(a_publisher(client, key=new_key()))
        await announce(a_publisher(client))
