"""What relays say of themselves, and what readers are told of relays: advice only, since every chunk is checked."""

import re
from typing import ClassVar

from farflung.wire.canonical import Record
from farflung.wire.invariants import require_counts, require_names

MAX_SOURCES = 16
"""Servers in one list."""
MAX_COMPLAINTS = 16
MAX_REASON_CHARS = 200
_SERVER = re.compile(r"https?://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[1-9]\d{0,4})?", re.ASCII)


def require_servers(**fields: tuple[str, ...]) -> None:
    """Each is a scheme, a host and perhaps a port: no path, no user, nothing that a server would be told."""
    for name, servers in fields.items():
        wrong = next((server for server in servers if not _SERVER.fullmatch(server)), None)
        if wrong is not None:
            raise ValueError(f"{name} has {wrong[:80]!r}: it must look like http://10.0.0.7:7500")


class RelayOffer(Record, frozen=True, kw_only=True):
    """A relay's sign of life: the first one registers it, and it is dropped when they stop."""

    MAX_BYTES: ClassVar[int] = 16 << 10

    relay: str
    url: str
    """Where others reach it."""
    upload_bytes_per_s: int
    """What it can send in all; as its operator says, so it decides about places in the tree and nothing else."""
    policy_version: int
    """Newest that it passes on; -1 before the first."""
    liars: tuple[str, ...] = ()
    """Servers that sent it other bytes than a chunk's."""

    def __post_init__(self) -> None:
        require_names(relay=self.relay)
        require_servers(url=(self.url,), liars=self.liars)
        require_counts(upload_bytes_per_s=self.upload_bytes_per_s)
        require_counts(at_least=-1, policy_version=self.policy_version)
        if len(self.liars) > MAX_COMPLAINTS:
            raise ValueError(f"{len(self.liars)} liars, at most {MAX_COMPLAINTS} are told at once")


class SourcesWanted(Record, frozen=True, kw_only=True):
    """A worker or validator asks which relays to fetch from, and says which ones lied to it."""

    MAX_BYTES: ClassVar[int] = 16 << 10

    node: str
    liars: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_names(node=self.node)
        require_servers(liars=self.liars)
        if len(self.liars) > MAX_COMPLAINTS:
            raise ValueError(f"{len(self.liars)} liars, at most {MAX_COMPLAINTS} are told at once")


class Sources(Record, frozen=True, kw_only=True):
    """Whom to fetch from beside the coordinator, which always serves."""

    servers: tuple[str, ...]
    """For a relay its parent, the parent's parent, ...; for others a few relays."""
    oldest_version: int = 0
    """Whoever is leased a version can make it from this one on: relays keep those, and may drop older ones."""
    refusal: str = ""
    """Why the relay that asked is not listed (now); empty = it is, or a reader asked."""

    def __post_init__(self) -> None:
        require_servers(servers=self.servers)
        require_counts(oldest_version=self.oldest_version)
        if len(self.servers) > MAX_SOURCES or len(self.refusal) > MAX_REASON_CHARS:
            raise ValueError(f"{len(self.servers)} servers with a reason of {len(self.refusal)} characters")


class RelayStatus(Record, frozen=True, kw_only=True):
    """A relay in the coordinator's picture of the pool."""

    url: str
    relay: str
    """Who runs it; empty = nobody registered it, the operator lists it."""
    parent: str
    """Whom it was told to fetch from first; empty = the coordinator."""
    policy_version: int
    last_seen_ms: int
    problem: str = ""
    """Why it is not handed out; empty = it is."""
    num_accusers: int = 0
    """Nodes that say that it lied; it is looked at, and they are not sent to it again."""
