"""What a relay keeps: versions that may be asked for, and of their chunks as many as there is room for."""

from hypothesis import given
from hypothesis import strategies as st

from farflung.relay.keeping import KEEP_VERSIONS, MAX_KEPT, chunks_of, kept_sizes, oldest_kept
from farflung.wire.manifest import Manifest
from relay_harness import version


def chain(num_versions: int, num_chunks: int = 4) -> dict[int, Manifest]:
    return {number: version(number, num_chunks=num_chunks)[0] for number in range(num_versions)}


def test_versions_in_use_are_kept_and_the_newest_few_where_nobody_tells() -> None:
    assert oldest_kept(20, None) == 20 - KEEP_VERSIONS + 1
    assert oldest_kept(3, None) == 0
    assert oldest_kept(20, 16) == 16
    assert oldest_kept(20, 0) == 0
    assert oldest_kept(20, 25) == 20, "the newest is kept whatever a coordinator says"
    assert oldest_kept(5000, 0) == 5000 - MAX_KEPT + 1
    assert oldest_kept(-1, 3) == -1


def test_the_newest_version_comes_first() -> None:
    manifests = chain(3)
    newest, middle = ({chunk.sha256 for chunk in chunks_of(manifests[number])} for number in (2, 1))
    assert set(kept_sizes(manifests, 4000)) == newest
    assert set(list(kept_sizes(manifests, 8000))[:4]) == newest
    assert set(kept_sizes(manifests, 8000)) == newest | middle


@given(st.integers(0, 4), st.integers(0, 20_000))
def test_never_more_than_the_disk_holds_and_nothing_that_would_still_fit_is_left_out(
    num_versions: int, max_bytes: int
) -> None:
    manifests = chain(num_versions)
    kept = kept_sizes(manifests, max_bytes)
    assert sum(kept.values()) <= max_bytes
    for manifest in manifests.values():
        for chunk in chunks_of(manifest):
            assert chunk.sha256 in kept or sum(kept.values()) + chunk.num_bytes > max_bytes
