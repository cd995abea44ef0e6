"""The state as a function of the journal: snapshots, and journals that cannot be read."""

from typing import Any

import pytest
from msgspec.structs import replace

from farflung.coordinator.journal import PoolOpened, Published, decode, encode
from farflung.coordinator.pool_state import PoolState, restore
from farflung.errors import OurFault, UserError
from farflung.slots.events import LeaseGranted
from farflung.slots.grants import Grant
from farflung.slots.leases import write_lease
from farflung.slots.lifecycle import IllegalEvent
from farflung.state.event_log import SNAPSHOT, Entry
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import LeaseRequest
from farflung.wire.manifest import Chunk, ManifestFile, WeightsPatch

SECRET = bytes(range(32))


def opened(build: Any) -> PoolOpened:
    return PoolOpened(spec=build.pool_spec(), secret=SECRET)


def life(build: Any) -> list[Any]:
    """Two versions and a lease."""
    spec = build.pool_spec()
    first = build.publication_of(spec, None)
    second = build.publication_of(spec, first)
    policy_digest = second.manifest.policy_digest
    request = LeaseRequest(node="w1", policy_version=1, policy_digest=policy_digest)
    lease = write_lease(spec, spec.digest(), SECRET, request, Grant(slot=0, attempt=0), now_ms=5)
    return [
        opened(build),
        Published(publication=first),
        Published(publication=second),
        LeaseGranted(lease=lease),
    ]


def through_the_log(record: Any, sequence: int = 0) -> Any:
    kind, body = encode(record)
    return decode(Entry(sequence=sequence, at_ms=0, kind=kind, body=body))


def test_every_record_survives_the_log(build: Any) -> None:
    for record in life(build):
        assert through_the_log(record) == record


def test_a_snapshot_is_the_state_and_goes_on_like_it(build: Any) -> None:
    state = restore(life(build))
    assert state is not None
    snapshot = through_the_log(state.snapshot())
    again = restore([snapshot])
    assert again is not None
    assert again.snapshot() == snapshot == state.snapshot()
    assert again.last_publication == life(build)[2].publication
    assert again.chunks_in_use() == state.chunks_in_use() != set()
    third = Published(publication=build.publication_of(state.rules, state.last_publication))
    for either in (state, again):
        either.apply(third)
        assert set(either.manifests) == {1, 2}
    assert again.snapshot() == state.snapshot()


def test_an_empty_journal_is_no_state() -> None:
    assert restore([]) is None


def test_a_journal_must_start_with_the_pool(build: Any) -> None:
    with pytest.raises(OurFault, match="starts with a Published"):
        restore(life(build)[1:])
    with pytest.raises(OurFault, match="in the middle"):
        restore([opened(build), opened(build)])


def test_a_journal_of_another_format_is_refused(build: Any) -> None:
    with pytest.raises(UserError, match="format 2, this version of farflung reads 1"):
        PoolState(replace(opened(build), format=2))


def test_an_impossible_publication_changes_nothing(build: Any) -> None:
    state = restore(life(build))
    assert state is not None
    before = state.snapshot()
    with pytest.raises(IllegalEvent):
        state.apply(life(build)[1])
    assert state.snapshot() == before


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("invented", b"{}", "kind 'invented'"),
        ("published", b"{", "damaged"),
        ("published", b"{}", "damaged"),
        (SNAPSHOT, b"null", "damaged"),
    ],
)
def test_entries_that_this_code_did_not_write_are_named(kind: str, body: bytes, words: str) -> None:
    with pytest.raises(OurFault, match=f"entry 7 .*{words}"):
        decode(Entry(sequence=7, at_ms=0, kind=kind, body=body))


def patched(build: Any, publication: Any, previous: Any) -> Any:
    """The same version as a patch."""
    manifest = publication.manifest
    content = ManifestFile(
        name="patch",
        num_bytes=3,
        sha256=sha256_hex(b"%d" % manifest.policy_version),
        chunks=(Chunk(index=0, num_bytes=3, sha256=sha256_hex(b"%d" % manifest.policy_version)),),
    )
    patch = WeightsPatch(
        file="model.safetensors",
        base_version=manifest.policy_version - 1,
        base_sha256=previous.manifest.files[0].sha256,
        content=content,
    )
    return replace(publication, manifest=build.signed(replace(manifest, kind="patch", patch=patch)))


def test_versions_that_patches_lead_back_to_are_kept_and_only_what_is_promised(build: Any) -> None:
    """Snapshots are 0 and 6."""
    state = restore([opened(build)])
    assert state is not None
    last = None
    for version in range(14):
        publication = build.publication_of(state.rules, last)
        if version not in (0, 6):
            publication = patched(build, publication, last)
        state.apply(Published(publication=publication))
        last = publication
        oldest = min(state.ledger.table.versions)
        assert min(state.manifests) == (0 if oldest < 6 else 6)
        assert sorted(state.manifests) == list(range(min(state.manifests), version + 1))
    assert min(state.ledger.table.versions) > 6, "the test is long enough"
    whole = {chunk.sha256 for chunk in state.manifests[6].files[0].chunks}
    patches = {sha256_hex(b"%d" % version) for version in range(7, 14)}
    assert state.chunks_in_use() == whole | patches
    again = restore([through_the_log(state.snapshot())])
    assert again is not None
    assert again.manifests == state.manifests
