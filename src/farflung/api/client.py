"""The other roles' view of the coordinator: one method per route.

Every call is safe to repeat (`api.retry.retrying`). The client does not retry, cache or know what the records mean.
"""

import asyncio
import io
import os
import ssl
import time
from collections.abc import Collection
from http import HTTPStatus
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
from yarl import URL

from farflung.api import routes
from farflung.api.errors import Refused
from farflung.api.records import MAX_ASSIGNMENTS, MAX_OUTCOMES, Assignments, LedgerIndex, OpenSlots, Outcomes, Refusal
from farflung.api.routes import Route
from farflung.api.signed_calls import ServerClock, signing_headers
from farflung.errors import PeerFault, Transient
from farflung.identity.keys import NodeKey
from farflung.wire.batch import SlotOutcome
from farflung.wire.canonical import Record, sha256_hex
from farflung.wire.curriculum import CurriculumPlan
from farflung.wire.epoch import EpochNotice, EpochNotices
from farflung.wire.history import FOLDER, MAX_SEGMENT_BYTES
from farflung.wire.lease import Forfeit, Lease, LeaseRequest
from farflung.wire.manifest import Manifest, Publication
from farflung.wire.node import Heartbeat, PoolStatus, Role
from farflung.wire.panel import Commitment, Reveal
from farflung.wire.pool import PoolSpec
from farflung.wire.relay import RelayOffer, Sources, SourcesWanted
from farflung.wire.submission import Assignment, Receipt, Submission, UploadTicket
from farflung.wire.verdict import EvidenceBundle, Judgement, Verdict

Answer = TypeVar("Answer", bound=Record)
Query = dict[str, str]


class CoordinatorClient:
    """An async context manager; one per process.

    Every method raises:
        Transient: the coordinator cannot be reached, timed out, or answered 429 or 5xx; the call may have taken effect.
        Refused: it said no, with a reason.
        PeerFault: it answered something that is not this protocol, or more bytes than announced.

    Args:
        url: where the coordinator listens, e.g. `http://127.0.0.1:7400`.
        node: this machine's name in the pool (`routes.NODE_PATTERN`).
        role: what this process is.
        token: the pool's secret for the role (`api.tokens`); workers need none.
        timeout_s: longest silence, beside the `wait_s` of a long poll, before a call counts as failed.
        tls: how an https coordinator is checked (`api.tls`); None = as the system does it.
    """

    def __init__(
        self,
        url: str,
        *,
        node: str,
        role: Role,
        token: str | None = None,
        timeout_s: float = 10.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.node = node
        self.role = role
        self.is_finished = False
        """True once any answer said that the run is over: finish what is in hand and exit 0."""
        self._token = token
        self._key: NodeKey | None = None
        self._pool_digest = ""
        self._clock = ServerClock()
        self._timeout_s = timeout_s
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls or True), trust_env=False, auto_decompress=False
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def sign_calls(self, key: NodeKey, pool_digest: str) -> None:
        """From now on this is the key's node, and every call says so, in pools where a node is its key."""
        self.node, self._key, self._pool_digest = key.address, key, pool_digest

    # The pool and its policy.

    async def pool(self) -> PoolSpec:
        """The rules that everyone follows."""
        return await self._record(routes.POOL, PoolSpec)

    async def latest_manifest(self, newer_than: int = -1, wait_s: float = 0.0) -> Manifest | None:
        """The newest version once it is above `newer_than`; None when `wait_s` passed first."""
        return await self._maybe_record(
            routes.LATEST_MANIFEST, Manifest, query={"newer_than": str(newer_than)}, wait_s=wait_s
        )

    async def manifest(self, version: int) -> Manifest:
        """One version's manifest; refused `not_found` when unknown or out of the window."""
        return await self._record(routes.MANIFEST, Manifest, parts={"version": str(version)})

    async def curriculum(self, digest: str) -> CurriculumPlan:
        """The plan that a manifest or lease names; refused `not_found` when its versions are out of the window.

        Raises:
            PeerFault: the answer is another plan.
        """
        plan = await self._record(routes.CURRICULUM, CurriculumPlan, parts={"digest": digest})
        if plan.digest() != digest:
            raise PeerFault("curriculum_digest", f"asked for plan {digest}, got {plan.digest()}")
        return plan

    async def get_chunk(self, sha256: str, num_bytes: int) -> bytes:
        """One chunk of a manifest, checked against its hash and size; refused `not_found` when it was collected."""
        data = await self._bytes(routes.GET_CHUNK, parts={"sha256": sha256}, max_bytes=num_bytes)
        if len(data) != num_bytes or sha256_hex(data) != sha256:
            raise PeerFault("chunk_digest", f"chunk {sha256}: got {len(data)} bytes with hash {sha256_hex(data)}")
        return data

    async def relays(self, liars: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Which relays to fetch chunks from, for workers and validators.

        Args:
            liars: those that sent other bytes than a chunk's; they are left out from now on.
        """
        return (await self._record(routes.SOURCES, Sources, body=SourcesWanted(node=self.node, liars=liars))).servers

    # Relays.

    async def offer_relay(self, offer: RelayOffer) -> Sources:
        """A sign of life of a relay; whom to fetch from, and why it is not listed if it is not."""
        return await self._record(routes.OFFER_RELAY, Sources, body=offer)

    # The auditor.

    async def epochs(self) -> list[EpochNotice]:
        """Commitments, and the secrets of epochs that are over; oldest first."""
        return list((await self._record(routes.EPOCHS, EpochNotices)).items)

    async def ledger_keys(self) -> list[str]:
        """Of everything that was published of the journal, in order."""
        keys: list[str] = []
        while True:
            query = {"after": keys[-1] if keys else ""}
            found = (await self._record(routes.LEDGER, LedgerIndex, query=query)).keys
            if not found:
                return keys
            keys += found

    async def ledger_part(self, key: str) -> bytes:
        """A segment or a revealed epoch; refused `not_found` when there is none of this key."""
        parts = {"name": key.removeprefix(f"{FOLDER}/")}
        return await self._bytes(routes.LEDGER_PART, parts=parts, max_bytes=MAX_SEGMENT_BYTES)

    # Workers.

    async def lease(self, request: LeaseRequest, wait_s: float = 0.0) -> Lease | None:
        """A slot to work on.

        A node that already holds an open lease of this version gets the same lease again, so a lost answer or a restart
        costs nothing; one of another version is forfeited by asking.

        Returns:
            None when there is no capacity within `wait_s`, or as soon as the version is no longer the newest.
        """
        return await self._maybe_record(routes.LEASE, Lease, body=request, wait_s=wait_s)

    async def forfeit(self, forfeit: Forfeit) -> None:
        """Give a lease back. One that is already over is not an error."""
        await self._empty(routes.FORFEIT, body=forfeit)

    async def ticket(self, lease_id: str) -> UploadTicket:
        """Where the file of this lease goes. The same ticket each time."""
        return await self._record(routes.TICKET, UploadTicket, parts={"lease_id": lease_id})

    async def upload(self, ticket: UploadTicket, data: bytes) -> None:
        """Store the file under the ticket's key; again with other bytes replaces it until it is submitted."""
        await self._empty(routes.UPLOAD, parts={"key": ticket.key}, raw=data)

    async def submit(self, submission: Submission) -> Receipt:
        """Hand the work in; durable once this returns. The same submission again gives the same receipt."""
        return await self._record(routes.SUBMIT, Receipt, body=submission)

    # Validators.

    async def assignments(
        self, max_count: int = 1, wait_s: float = 0.0, held: Collection[str] = ()
    ) -> list[Assignment]:
        """Submissions to judge, oldest first; what is not judged by its deadline goes to another validator.

        Args:
            max_count: most that are given out by this call.
            held: digests of the submissions that this process still works on. What is assigned to this node and not
                held is given out again first, so a restarted validator gets its work back at once.
        """
        return list((await self.work(max_count, wait_s, held)).items)

    async def work(self, max_count: int = 1, wait_s: float = 0.0, held: Collection[str] = ()) -> Assignments:
        """As `assignments`, with the votes that are to be shown now.

        Args:
            held: also those that were judged and whose votes are not shown yet.
        """
        query = {"max_count": str(min(max_count, MAX_ASSIGNMENTS)), "held": ",".join(held)}
        return await self._record(routes.ASSIGN, Assignments, query=query, wait_s=wait_s)

    async def seal(self, commitment: Commitment) -> None:
        """Commit to a vote. The same again is not an error."""
        await self._empty(routes.SEAL, body=commitment)

    async def show(self, reveal: Reveal) -> None:
        """Show the vote behind a commitment. The same again is not an error."""
        await self._empty(routes.SHOW, body=reveal)

    async def judge(self, judgement: Judgement) -> None:
        """Record a verdict. The same again is not an error."""
        await self._empty(routes.JUDGE, body=judgement)

    async def download(self, key: str, max_bytes: int) -> bytes:
        """A rollout file. Its digest is the caller's to check."""
        return await self._bytes(routes.DOWNLOAD, parts={"key": key}, max_bytes=max_bytes)

    async def evidence(self, verdict: Verdict) -> EvidenceBundle:
        """The bundle behind a verdict, with the rewards; checked against the verdict's `evidence_digest`."""
        key = routes.evidence_key(verdict.evidence_digest)
        bundle = EvidenceBundle.from_bytes(await self.download(key, EvidenceBundle.MAX_BYTES))
        if bundle.digest() != verdict.evidence_digest:
            raise PeerFault("evidence_digest", f"{key} holds evidence with digest {bundle.digest()}")
        return bundle

    # The trainer.

    async def outcomes(self, after: int = -1, wait_s: float = 0.0, limit: int = MAX_OUTCOMES) -> list[SlotOutcome]:
        """Slots that reached a final state, in sequence order, with sequence above `after`.

        Sequences are consecutive, but entries that can no longer matter are left out: accepted slots that a published
        batch consumed or dropped, and other slots that left the staleness window. So a trainer that starts again and
        asks from the beginning gets exactly what it may still train on, and why other slots will not come.
        """
        query = {"after": str(after), "limit": str(min(limit, MAX_OUTCOMES))}
        return list((await self._record(routes.OUTCOMES, Outcomes, query=query, wait_s=wait_s)).items)

    async def open_slots(self) -> OpenSlots:
        """Slots that are not yet final. Asked before `outcomes`, it tells which lower slots to wait for."""
        return await self._record(routes.OPEN_SLOTS, OpenSlots)

    async def put_chunk(self, sha256: str, data: bytes) -> None:
        """Store one chunk of the next version; the coordinator checks the hash."""
        await self._empty(routes.PUT_CHUNK, parts={"sha256": sha256}, raw=data)

    async def publish(self, publication: Publication) -> None:
        """Announce a version, all chunks stored before. Durable once this returns; the same again is not an error.

        Refused `version_order`, `chunk_missing`, `batch_link` or `wrong_pool`.
        """
        await self._empty(routes.PUBLISH, body=publication)

    async def last_publication(self) -> Publication | None:
        """What the coordinator last took from `publish`, whole; None before the first."""
        return await self._maybe_record(routes.LAST_PUBLICATION, Publication)

    async def finish(self) -> None:
        """The run is over: everyone's `is_finished` turns true and open long polls return.

        Not kept across a restart of the coordinator, so that a longer run can go on from there: a trainer that finds
        its goal reached finishes again.
        """
        await self._empty(routes.FINISH)

    # Everyone.

    async def heartbeat(self, heartbeat: Heartbeat) -> None:
        """A sign of life; a node that is silent for too long loses its lease."""
        await self._empty(routes.HEARTBEAT, body=heartbeat)

    async def status(self) -> PoolStatus:
        """The coordinator's picture of the pool."""
        return await self._record(routes.STATUS, PoolStatus)

    # One exchange.

    async def _record(
        self,
        route: Route,
        answer: type[Answer],
        *,
        parts: Query | None = None,
        query: Query | None = None,
        body: Record | None = None,
        wait_s: float = 0.0,
    ) -> Answer:
        data = await self._exchange(route, answer.MAX_BYTES, parts, query, body, None, wait_s)
        if data is None:
            raise PeerFault("malformed_record", f"{self.url}{route.path} answered nothing, {answer.__name__} expected")
        return answer.from_bytes(data)

    async def _maybe_record(
        self,
        route: Route,
        answer: type[Answer],
        *,
        query: Query | None = None,
        body: Record | None = None,
        wait_s: float = 0.0,
    ) -> Answer | None:
        data = await self._exchange(route, answer.MAX_BYTES, None, query, body, None, wait_s)
        return None if data is None else answer.from_bytes(data)

    async def _bytes(self, route: Route, *, parts: Query, max_bytes: int) -> bytes:
        return await self._exchange(route, max_bytes, parts, None, None, None, 0.0) or b""

    async def _empty(
        self, route: Route, *, parts: Query | None = None, body: Record | None = None, raw: bytes | None = None
    ) -> None:
        await self._exchange(route, 0, parts, None, body, raw, 0.0)

    async def _exchange(
        self,
        route: Route,
        max_bytes: int,
        parts: Query | None,
        query: Query | None,
        body: Record | None,
        raw: bytes | None,
        wait_s: float,
    ) -> bytes | None:
        """One request and its answer's bytes; None for 204."""
        assert self._session is not None, "use `async with CoordinatorClient(...)`"
        params = {**(query or {}), "wait_s": f"{wait_s:g}"} if wait_s else query
        url = URL(self.url + route.path.format(**(parts or {}))).update_query(params or {})
        data = body.to_bytes() if body is not None else raw
        silence_s = self._timeout_s + wait_s
        try:
            async with self._session.request(
                route.method,
                url,
                data=None if data is None else io.BytesIO(data),
                headers=await self._headers(
                    route.method, url, data, routes.RECORD_TYPE if raw is None else routes.BYTES_TYPE
                ),
                timeout=aiohttp.ClientTimeout(total=None, connect=self._timeout_s, sock_read=silence_s),
                allow_redirects=False,
            ) as response:
                self._clock.heard(response.headers.get("Date"), int(time.time() * 1000))
                self.is_finished = self.is_finished or routes.FINISHED_HEADER in response.headers
                return await _answer(response, max_bytes)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Transient(
                f"coordinator at {self.url}: {route.method} {route.path} failed: {_cause(error)}"
            ) from error

    async def _headers(self, method: str, url: URL, data: bytes | None, content_type: str) -> dict[str, str]:
        headers = {
            routes.NODE_HEADER: self.node,
            routes.ROLE_HEADER: self.role.value,
            "Content-Type": content_type,
            **({} if self._token is None else {"Authorization": f"{routes.TOKEN_SCHEME} {self._token}"}),
        }
        if self._key is None:
            return headers
        body_sha256 = await asyncio.to_thread(sha256_hex, data or b"")
        at_ms = self._clock.now_ms(int(time.time() * 1000))
        return headers | signing_headers(self._key, self._pool_digest, method, url.raw_path_qs, body_sha256, at_ms)


def _cause(error: Exception) -> str:
    """In a few words: "connection refused" where the library would tell of sockets and TLS."""
    if isinstance(error, aiohttp.ClientSSLError):
        return f"{error}; name the authority of its certificate with --run.ca_file or SSL_CERT_FILE"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0
        return os.strerror(number).lower() if number > 0 else error.os_error.strerror or str(error.os_error)
    return str(error) or type(error).__name__


async def _answer(response: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """Read the body within its bound and turn the status into a result or an error."""
    if response.status == 204:
        return None
    if response.status == 200:
        return await _read_bounded(response, max_bytes)
    text = await _read_bounded(response, Refusal.MAX_BYTES)
    if response.status >= 500 or response.status == HTTPStatus.TOO_MANY_REQUESTS:
        raise Transient(f"{response.url} answered {response.status}: {text.decode(errors='replace')[:200]}")
    try:
        refusal = Refusal.from_bytes(text)
    except PeerFault as error:
        detail = f"{response.url} answered {response.status}, which is not a refusal of a farflung coordinator"
        raise PeerFault("malformed_record", detail) from error
    raise Refused(refusal.reason, refusal.message)


async def _read_bounded(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Raises `PeerFault` as soon as the body is longer than `max_bytes`."""
    body = bytearray()
    async for piece in response.content.iter_chunked(1 << 18):
        body += piece
        if len(body) > max_bytes:
            raise PeerFault("too_large", f"{response.url} answered more than {max_bytes} bytes")
    return bytes(body)
