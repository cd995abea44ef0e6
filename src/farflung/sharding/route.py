"""How a node gets from the version that it has to the newest: by patches one after the other, or by a snapshot first.

Versions form a chain; each can be had by a patch on the one before, by a snapshot, or by both. The cheapest way in
bytes is a shortest path in which a snapshot may be entered from anywhere; a late joiner has nothing and starts at a
snapshot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOffer:
    """What can be had of one version."""

    patch_bytes: int | None
    """On the version before; None = there is none."""
    snapshot_bytes: int | None


@dataclass(frozen=True, slots=True)
class Route:
    """Versions to fetch, in order."""

    snapshot: int | None
    """Version to begin with as a snapshot; None = what the node has."""
    patches: Sequence[int]
    """Versions to apply as patches after it, ascending."""
    num_bytes: int


def cheapest(offers: Mapping[int, VersionOffer], *, have: int | None, want: int) -> Route | None:
    """The route of fewest bytes to `want`; of equal ones that with fewer patches. None = there is no way.

    Args:
        offers: by version; versions that are gone are not there.
        have: version that the node holds complete, None = nothing.
    """
    if have == want:
        return Route(None, (), 0)
    patches: list[int] = []
    patch_bytes = 0
    best: Route | None = None
    version = want
    while (offer := offers.get(version)) is not None:
        if offer.snapshot_bytes is not None:
            best = _better(best, Route(version, tuple(reversed(patches)), patch_bytes + offer.snapshot_bytes))
        if offer.patch_bytes is None:
            break
        patches.append(version)
        patch_bytes += offer.patch_bytes
        version -= 1
        if version == have:
            best = _better(best, Route(None, tuple(reversed(patches)), patch_bytes))
            break
    return best


def _better(one: Route | None, other: Route) -> Route:
    if one is None or (other.num_bytes, len(other.patches)) < (one.num_bytes, len(one.patches)):
        return other
    return one
