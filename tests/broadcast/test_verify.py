"""Every flipped bit of a version is found, and its place named."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.broadcast.verify import Verifier
from farflung.errors import PeerFault
from farflung.identity.keys import key_from_bytes
from farflung.identity.signing import sign
from farflung.sharding.findings import Finding
from farflung.sharding.patch_build import build_patch
from farflung.sharding.plan import with_offsets
from farflung.wire.manifest import Manifest
from signed_run import CHUNK_BYTES, TRAINER, WEIGHTS, SignedRun, signed_run

RUN = signed_run(5)


def verifier(run: SignedRun, trainer: str = TRAINER.address) -> Verifier:
    return Verifier(run.manifests, trainer, lambda chunk: run.chunks.get(chunk.sha256), WEIGHTS)


def copy_of(run: SignedRun) -> SignedRun:
    return SignedRun(manifests=dict(run.manifests), chunks=dict(run.chunks), files=list(run.files))


def findings_of(run: SignedRun, trainer: str = TRAINER.address) -> list[Finding]:
    return list(verifier(run, trainer).findings())


def test_a_sound_run_has_no_findings_and_every_file_is_counted() -> None:
    found = verifier(RUN)
    assert list(found.findings()) == []
    # per version config.json; weights of 0 and 3; four patches and the four files that they make
    assert found.num_files == 5 + 2 + 4 + 4
    assert found.unchecked_patches == []


def test_a_snapshot_whose_base_is_gone_is_sound_but_for_its_patch_which_is_told() -> None:
    run = copy_of(RUN)
    del run.manifests[0], run.manifests[1], run.manifests[2]
    found = verifier(run)
    assert list(found.findings()) == []
    assert found.unchecked_patches == [3]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_flipped_bit_of_any_chunk_is_found_with_its_file_and_bytes(data: st.DataObject) -> None:
    places = [
        (version, file.name, start, chunk)
        for version, manifest in RUN.manifests.items()
        for file in manifest.promised_files
        for start, chunk in with_offsets(file)
    ]
    _, _, _, chunk = data.draw(st.sampled_from(places))
    expected = {
        (version, name, start, start + each.num_bytes) for version, name, start, each in places if each == chunk
    }
    bit = data.draw(st.integers(0, 8 * chunk.num_bytes - 1))
    run = copy_of(RUN)
    damaged = bytearray(run.chunks[chunk.sha256])
    damaged[bit // 8] ^= 1 << bit % 8
    run.chunks[chunk.sha256] = bytes(damaged)
    found = findings_of(run)
    named = {(each.version, each.where, each.first_byte, each.end_byte) for each in found if each.chunk is not None}
    assert expected <= named
    assert {each.reason for each in found if each.chunk is not None} == {"chunk_digest"}
    # what cannot be made any more says so; nothing else is blamed
    assert {each.reason for each in found} <= {"chunk_digest", "missing"}


@settings(max_examples=60, deadline=None)
@given(version=st.integers(0, 4), data=st.data())
def test_any_flipped_bit_of_a_manifest_is_refused_by_its_form_or_found_by_its_signature(
    version: int, data: st.DataObject
) -> None:
    raw = bytearray(RUN.manifests[version].to_bytes())
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    run = copy_of(RUN)
    try:
        run.manifests[version] = Manifest.from_bytes(bytes(raw))
    except PeerFault:
        return
    assert any(each.version == version and each.reason == "bad_signature" for each in findings_of(run))


def test_a_lost_chunk_is_missing_and_what_is_made_from_it_too() -> None:
    run = copy_of(RUN)
    patch = run.manifests[1].patch
    assert patch is not None
    del run.chunks[patch.content.chunks[0].sha256]
    found = findings_of(run)
    assert [(each.version, each.where, each.chunk) for each in found] == [
        (1, f"{WEIGHTS}.patch", 0),
        (2, f"{WEIGHTS} made by {WEIGHTS}.patch", None),
    ]
    assert {each.reason for each in found} == {"missing"}


def test_a_lost_chunk_of_a_snapshot_leaves_it_to_be_made_by_its_patch() -> None:
    run = copy_of(RUN)
    file = next(file for file in run.manifests[3].files if file.name == WEIGHTS)
    del run.chunks[file.chunks[2].sha256]
    found = findings_of(run)
    assert [(each.version, each.where, each.first_byte) for each in found] == [(3, WEIGHTS, 2 * CHUNK_BYTES)]


def test_mallory_another_key_a_broken_chain_and_two_faces_have_their_names() -> None:
    stranger = key_from_bytes(b"\x09" * 32)
    assert {each.reason for each in findings_of(RUN, stranger.address)} == {"bad_signature"}
    assert len(findings_of(RUN, stranger.address)) == 5
    run = copy_of(RUN)
    run.manifests[2] = sign(msgspec.structs.replace(run.manifests[2], previous_digest="00" * 32), TRAINER)
    assert [(each.version, each.where, each.reason) for each in findings_of(run)] == [
        (2, "chain", "split_view"),
        (3, "chain", "split_view"),
    ]
    run = copy_of(RUN)
    run.manifests[4] = run.manifests[3]
    assert [(each.version, each.reason) for each in findings_of(run)] == [(4, "split_view")]


def test_a_patch_that_the_trainer_signed_and_that_makes_another_file_is_named() -> None:
    run = signed_run(1)
    other = bytearray(run.files[0])
    other[-1] ^= 1
    run.publish(patch=build_patch(run.files[0], bytes(other)))
    found = findings_of(run)
    assert [(each.version, each.where) for each in found] == [(1, WEIGHTS)] * len(found)
    assert found[0].reason == "chunk_digest"


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_a_table_of_other_tensors_is_found(dtype: str) -> None:
    run = signed_run(1)
    tensors = run.manifests[0].tensors
    table = (msgspec.structs.replace(tensors[0], dtype=dtype), *tensors[1:])
    run.manifests[0] = sign(msgspec.structs.replace(run.manifests[0], tensors=table), TRAINER)
    found = findings_of(run)
    assert [each.reason for each in found] == ["tensor_table"]
    assert f"is F16 [1000], the manifest says {dtype} [1000]" in found[0].detail
