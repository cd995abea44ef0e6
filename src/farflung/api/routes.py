"""The HTTP interface as a table: one route, one record in, one record out, one limit.

Bodies are canonical JSON records, or raw bytes for objects and chunks. An answer without a record is 204. A refusal is
4xx with a `Refusal`; 429 means that the address asks too often, 5xx that the coordinator is in trouble, and the same
call may succeed later. This module does
not know how either side carries a call out.
"""

from dataclasses import dataclass
from typing import Literal

from farflung.api.records import Assignments, LedgerIndex, OpenSlots, Outcomes
from farflung.wire.canonical import Record
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.epoch import EpochNotices
from farflung.wire.lease import Forfeit, Lease, LeaseRequest
from farflung.wire.manifest import Manifest, Publication
from farflung.wire.node import Heartbeat, PoolStatus, Role
from farflung.wire.panel import Commitment, Reveal
from farflung.wire.pool import PoolSpec
from farflung.wire.relay import RelayOffer, Sources, SourcesWanted
from farflung.wire.submission import Receipt, Submission, UploadTicket
from farflung.wire.verdict import Judgement

NODE_HEADER = "X-Farflung-Node"
ROLE_HEADER = "X-Farflung-Role"
FINISHED_HEADER = "X-Farflung-Finished"
"""On every answer once the run is over."""
TOKEN_SCHEME = "Bearer"
"""Of the `Authorization` header in which trainer and validators show their token (`api.tokens`)."""
RECORD_TYPE = "application/json"
BYTES_TYPE = "application/octet-stream"

MAX_WAIT_S = 60.0
"""Longest that a long poll is held; a longer wish is cut to this."""
MAX_CHUNK_BYTES = 64 << 20
"""Largest chunk that the coordinator stores."""
NODE_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
"""What a node may be called: it becomes part of keys and of log lines."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    method: Literal["GET", "POST", "PUT"]
    path: str
    """With `{name}` for variable parts."""
    takes: type[Record] | None = None
    gives: type[Record] | None = None
    roles: frozenset[Role] | None = None
    """Who may call it, by the role header; None = anyone, also without saying who."""


_WORKER = frozenset({Role.WORKER})
_VALIDATOR = frozenset({Role.VALIDATOR})
_TRAINER = frozenset({Role.TRAINER})
_PARTICIPANTS = _WORKER | _VALIDATOR | _TRAINER

POOL = Route(method="GET", path="/v1/pool", gives=PoolSpec)
LATEST_MANIFEST = Route(method="GET", path="/v1/manifests/latest", gives=Manifest)
"""Query `newer_than`, `wait_s`; 204 when there is none in time."""
MANIFEST = Route(method="GET", path="/v1/manifests/{version}", gives=Manifest)
CURRICULUM = Route(method="GET", path="/v1/curricula/{digest}", gives=CurriculumPlan)
"""The plan that manifests and leases name by this digest, for whoever checks what was sampled."""
EPOCHS = Route(method="GET", path="/v1/epochs", gives=EpochNotices)
"""Commitments to the secrets of epochs, and the secrets of those that are over."""
LEDGER = Route(method="GET", path="/v1/ledger", gives=LedgerIndex)
"""Query `after`: a key. Keys of what is published of the journal (`wire.history`)."""
LEDGER_PART = Route(method="GET", path="/v1/ledger/{name}")
OFFER_RELAY = Route(method="POST", path="/v1/relays", takes=RelayOffer, gives=Sources, roles=frozenset({Role.RELAY}))
"""A relay's sign of life, every few seconds."""
SOURCES = Route(
    method="POST",
    path="/v1/sources",
    takes=SourcesWanted,
    gives=Sources,
    roles=frozenset({Role.WORKER, Role.VALIDATOR}),
)
LEASE = Route(method="POST", path="/v1/leases", takes=LeaseRequest, gives=Lease, roles=_WORKER)
"""Query `wait_s`; 204 when there is no slot for this node and version in time."""
FORFEIT = Route(method="POST", path="/v1/forfeits", takes=Forfeit, roles=_WORKER)
TICKET = Route(method="GET", path="/v1/leases/{lease_id}/ticket", gives=UploadTicket, roles=_WORKER)
UPLOAD = Route(method="PUT", path="/v1/objects/{key}", roles=_WORKER)
DOWNLOAD = Route(method="GET", path="/v1/objects/{key}", roles=_TRAINER | _VALIDATOR)
SUBMIT = Route(method="POST", path="/v1/submissions", takes=Submission, gives=Receipt, roles=_WORKER)
ASSIGN = Route(method="POST", path="/v1/assignments", gives=Assignments, roles=_VALIDATOR)
"""Query `max_count`, `held` (digests, comma-separated), `wait_s`."""
JUDGE = Route(method="POST", path="/v1/judgements", takes=Judgement, roles=_VALIDATOR)
SEAL = Route(method="POST", path="/v1/commitments", takes=Commitment, roles=_VALIDATOR)
"""Where several validators judge a submission, in place of `JUDGE`: first this, then `SHOW` when it is asked for."""
SHOW = Route(method="POST", path="/v1/reveals", takes=Reveal, roles=_VALIDATOR)
OUTCOMES = Route(method="GET", path="/v1/outcomes", gives=Outcomes, roles=_TRAINER)
"""Query `after`, `limit`, `wait_s`."""
OPEN_SLOTS = Route(method="GET", path="/v1/slots/open", gives=OpenSlots, roles=_TRAINER)
PUT_CHUNK = Route(method="PUT", path="/v1/chunks/{sha256}", roles=_TRAINER)
GET_CHUNK = Route(method="GET", path="/v1/chunks/{sha256}")
PUBLISH = Route(method="POST", path="/v1/publications", takes=Publication, roles=_TRAINER)
LAST_PUBLICATION = Route(method="GET", path="/v1/publications/latest", gives=Publication)
"""204 before the first."""
HEARTBEAT = Route(method="POST", path="/v1/heartbeats", takes=Heartbeat, roles=_PARTICIPANTS)
STATUS = Route(method="GET", path="/v1/status", gives=PoolStatus)
FINISH = Route(method="POST", path="/v1/finish", roles=_TRAINER)


def evidence_key(evidence_digest: str) -> str:
    """Where the bundle behind a verdict can be downloaded."""
    return f"evidence/{evidence_digest}.json"
