"""The coordinator as an HTTP application: each route of `api.routes`, and what it calls."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from farflung.api import routes
from farflung.api.errors import RefusalReason, Refused
from farflung.api.records import (
    MAX_ASSIGNMENTS,
    MAX_LEDGER_KEYS,
    MAX_OUTCOMES,
    LedgerIndex,
    Outcomes,
)
from farflung.api.routes import Route
from farflung.api.server import exchange
from farflung.api.server.gate import Gate, through
from farflung.api.server.limits import RateLimit
from farflung.api.signed_calls import NonceBook
from farflung.coordinator import callers
from farflung.coordinator.core import Core
from farflung.coordinator.judging import JudgingDesk
from farflung.coordinator.leasing import LeasingDesk
from farflung.coordinator.publishing import PublishingDesk
from farflung.coordinator.relays import RelayDesk
from farflung.coordinator.status import pool_status
from farflung.wire import history
from farflung.wire.epoch import EpochNotices
from farflung.wire.lease import Forfeit, LeaseRequest
from farflung.wire.manifest import Publication
from farflung.wire.node import Heartbeat, Role
from farflung.wire.panel import Commitment, Reveal
from farflung.wire.relay import RelayOffer, SourcesWanted
from farflung.wire.submission import Submission
from farflung.wire.verdict import EvidenceBundle, Judgement

MAX_VERSION = 2**53
"""Bound of numbers in paths and queries; far above any version or sequence."""
_PATTERNS = {
    "{version}": r"{version:\d{1,15}}",
    "{sha256}": "{sha256:[0-9a-f]{64}}",
    "{digest}": "{digest:[0-9a-f]{64}}",
    "{key}": "{key:.{1,256}}",
    "{name}": r"{name:[a-z0-9.-]{1,64}}",
}
SIGNING_ROLES = frozenset({Role.WORKER, Role.VALIDATOR, Role.RELAY})
"""Who signs every call in pools that are not open; a trainer signs what it publishes."""
DOWNLOADABLE = ("rollouts/", "evidence/")


def build_app(
    core: Core, judging: JudgingDesk, relays: RelayDesk, gate: Gate, tokens: Mapping[Role, str] | None
) -> web.Application:
    """Every route, behind the gate, the error boundary, the limits and the tokens."""
    app = web.Application(middlewares=[through(gate), exchange.boundary, _admitting(core, tokens)])
    app.on_response_prepare.append(_telling(core))
    workers, validators, trainers = _Workers(core), _Validators(core, judging), _Trainers(core)
    handlers: dict[Route, Handler] = {
        routes.POOL: trainers.pool,
        routes.LATEST_MANIFEST: trainers.latest_manifest,
        routes.MANIFEST: trainers.manifest,
        routes.CURRICULUM: trainers.curriculum,
        routes.EPOCHS: _epochs(core),
        routes.LEDGER: _ledger(core),
        routes.LEDGER_PART: _ledger_part(core),
        routes.LEASE: workers.lease,
        routes.FORFEIT: workers.forfeit,
        routes.TICKET: workers.ticket,
        routes.UPLOAD: workers.upload,
        routes.SUBMIT: workers.submit,
        routes.ASSIGN: validators.assign,
        routes.JUDGE: validators.judge,
        routes.SEAL: validators.seal,
        routes.SHOW: validators.show,
        routes.DOWNLOAD: validators.download,
        routes.OUTCOMES: trainers.outcomes,
        routes.OPEN_SLOTS: trainers.open_slots,
        routes.PUT_CHUNK: trainers.put_chunk,
        routes.GET_CHUNK: trainers.get_chunk,
        routes.PUBLISH: trainers.publish,
        routes.LAST_PUBLICATION: trainers.last_publication,
        routes.HEARTBEAT: _heartbeat(core),
        routes.STATUS: _status(core, relays),
        routes.OFFER_RELAY: _offer_relay(relays),
        routes.SOURCES: _sources(relays),
        routes.FINISH: trainers.finish,
    }
    for route, handler in handlers.items():
        app.router.add_route(route.method, _pattern(route.path), handler)
    return app


def _pattern(path: str) -> str:
    for part, pattern in _PATTERNS.items():
        path = path.replace(part, pattern)
    return path


def _admitting(core: Core, tokens: Mapping[Role, str] | None) -> Middleware:
    """Turns away who asks too often or claims a role without its token; notes that the others live.

    Args:
        tokens: None = whatever a caller says of his role is believed.
    """
    rate = RateLimit(core.config.max_requests_per_s)
    nonces = NonceBook()

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not rate.admits(exchange.provider_of(request), asyncio.get_running_loop().time()):
            return exchange.too_many_requests(core.config.max_requests_per_s)
        caller = None if request.path == routes.POOL.path else callers.caller_of(request)
        if caller is not None:  # what a pool asks of its nodes is for everybody to read
            if tokens is not None:
                callers.check_token(request, caller, tokens)
            if (
                not core.is_open
                and caller.role in SIGNING_ROLES
                and not callers.check_signed(request, caller, core.state.pool_digest, nonces, core.now_ms())
            ):
                return exchange.too_many_requests(core.config.max_requests_per_s)
            core.nodes.saw(caller.role, caller.node, core.now_ms())
        return await handler(request)

    return admit


def _telling(core: Core) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Tells every caller when the run is over."""

    async def tell(_request: web.Request, answer: web.StreamResponse) -> None:
        if core.is_finished:
            answer.headers[routes.FINISHED_HEADER] = "1"

    return tell


def _heartbeat(core: Core) -> Handler:
    async def heartbeat(request: web.Request) -> web.StreamResponse:
        caller = callers.required_caller(request, routes.HEARTBEAT)
        beat = await exchange.read_record(request, Heartbeat)
        callers.check_is_caller(beat.node, caller)
        if beat.role is not caller.role:
            raise Refused(RefusalReason.WRONG_ROLE, f"{caller.node} calls as {caller.role} and beats as {beat.role}")
        core.nodes.beat(beat, core.now_ms())
        return exchange.record_answer(None)

    return heartbeat


def _offer_relay(desk: RelayDesk) -> Handler:
    async def offer_relay(request: web.Request) -> web.StreamResponse:
        caller = callers.required_caller(request, routes.OFFER_RELAY)
        offer = await exchange.read_record(request, RelayOffer)
        callers.check_is_caller(offer.relay, caller)
        return exchange.record_answer(desk.offer(offer, request.remote))

    return offer_relay


def _sources(desk: RelayDesk) -> Handler:
    async def sources(request: web.Request) -> web.StreamResponse:
        caller = callers.required_caller(request, routes.SOURCES)
        wanted = await exchange.read_record(request, SourcesWanted)
        callers.check_is_caller(wanted.node, caller)
        return exchange.record_answer(desk.sources(wanted, request.remote))

    return sources


def _status(core: Core, relays: RelayDesk) -> Handler:
    async def status(_request: web.Request) -> web.StreamResponse:
        answer = pool_status(core, relays.statuses())
        await core.committed()
        return exchange.record_answer(answer)

    return status


def _epochs(core: Core) -> Handler:
    async def epochs(_request: web.Request) -> web.StreamResponse:
        notices = core.state.epochs.notices(core.state.oldest_open_slot)
        await core.committed()
        return exchange.record_answer(EpochNotices(items=tuple(notices)))

    return epochs


def _ledger(core: Core) -> Handler:
    async def ledger(request: web.Request) -> web.StreamResponse:
        after = request.query.get("after", "")
        keys = [key for key in await core.files.ledger_keys() if key > after]
        return exchange.record_answer(LedgerIndex(keys=tuple(keys[:MAX_LEDGER_KEYS])))

    return ledger


def _ledger_part(core: Core) -> Handler:
    async def ledger_part(request: web.Request) -> web.StreamResponse:
        key = f"{history.FOLDER}/{request.match_info['name']}"
        if not history.is_ledger_key(key):
            raise Refused(RefusalReason.NOT_FOUND, f"{key!r} is no part of a ledger")
        try:
            data = await core.files.get_ledger(key)
        except KeyError:
            raise Refused(RefusalReason.NOT_FOUND, f"{key!r} was not published") from None
        async with core.outgoing.hold(len(data), exchange.provider_of(request)):
            return await exchange.send_bytes(request, data)

    return ledger_part


class _Workers:
    def __init__(self, core: Core) -> None:
        self._desk = LeasingDesk(core)

    async def lease(self, request: web.Request) -> web.StreamResponse:
        caller = callers.required_caller(request, routes.LEASE)
        wanted = await exchange.read_record(request, LeaseRequest)
        callers.check_is_caller(wanted.node, caller)
        provider = exchange.provider_of(request)
        return exchange.record_answer(await self._desk.lease(wanted, exchange.wait_s(request), provider))

    async def forfeit(self, request: web.Request) -> web.StreamResponse:
        caller = callers.required_caller(request, routes.FORFEIT)
        forfeit = await exchange.read_record(request, Forfeit)
        callers.check_is_caller(forfeit.node, caller)
        await self._desk.forfeit(forfeit)
        return exchange.record_answer(None)

    async def ticket(self, request: web.Request) -> web.StreamResponse:
        caller = callers.required_caller(request, routes.TICKET)
        return exchange.record_answer(await self._desk.ticket(caller.node, request.match_info["lease_id"]))

    async def upload(self, request: web.Request) -> web.StreamResponse:
        caller = callers.required_caller(request, routes.UPLOAD)
        announced = request.content_length

        async def read_body(max_bytes: int) -> bytes:
            return await exchange.read_body(request, max_bytes)

        await self._desk.upload(
            caller.node, request.match_info["key"], announced, exchange.provider_of(request), read_body
        )
        return exchange.record_answer(None)

    async def submit(self, request: web.Request) -> web.StreamResponse:
        caller = callers.required_caller(request, routes.SUBMIT)
        submission = await exchange.read_record(request, Submission)
        callers.check_is_caller(submission.node, caller)
        return exchange.record_answer(await self._desk.submit(submission))


class _Validators:
    def __init__(self, core: Core, desk: JudgingDesk) -> None:
        self._core = core
        self._desk = desk

    async def assign(self, request: web.Request) -> web.StreamResponse:
        caller = callers.required_caller(request, routes.ASSIGN)
        max_count = exchange.whole_number(request, "max_count", 1, least=1, most=MAX_ASSIGNMENTS)
        held = frozenset(request.query.get("held", "").split(","))
        answer = await self._desk.assignments(caller.node, max_count, held, exchange.wait_s(request))
        return exchange.record_answer(answer)

    async def seal(self, request: web.Request) -> web.StreamResponse:
        caller = callers.required_caller(request, routes.SEAL)
        commitment = await exchange.read_record(request, Commitment)
        callers.check_is_caller(commitment.validator, caller)
        await self._desk.seal(commitment)
        return exchange.record_answer(None)

    async def show(self, request: web.Request) -> web.StreamResponse:
        caller = callers.required_caller(request, routes.SHOW)
        reveal = await exchange.read_record(request, Reveal)
        callers.check_is_caller(reveal.judgement.verdict.validator, caller)
        await self._desk.show(reveal)
        return exchange.record_answer(None)

    async def judge(self, request: web.Request) -> web.StreamResponse:
        caller = callers.required_caller(request, routes.JUDGE)
        judgement = await exchange.read_record(request, Judgement)
        callers.check_is_caller(judgement.verdict.validator, caller)
        await self._desk.judge(judgement)
        return exchange.record_answer(None)

    async def download(self, request: web.Request) -> web.StreamResponse:
        callers.required_caller(request, routes.DOWNLOAD)
        key = request.match_info["key"]
        max_bytes = max(self._core.state.rules.max_file_bytes, EvidenceBundle.MAX_BYTES)
        if not key.startswith(DOWNLOADABLE):
            raise Refused(RefusalReason.NOT_FOUND, f"{key!r} is not a rollout file or evidence")
        try:
            data = await self._core.files.get(key, max_bytes)
        except KeyError:
            raise Refused(RefusalReason.NOT_FOUND, f"{key!r} is not there, or not any more") from None
        return await exchange.send_bytes(request, data)


class _Trainers:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._desk = PublishingDesk(core)

    async def pool(self, _request: web.Request) -> web.StreamResponse:
        return exchange.record_answer(self._core.state.rules)

    async def latest_manifest(self, request: web.Request) -> web.StreamResponse:
        newer_than = exchange.whole_number(request, "newer_than", -1, least=-1, most=MAX_VERSION)
        return exchange.record_answer(await self._desk.latest_manifest(newer_than, exchange.wait_s(request)))

    async def curriculum(self, request: web.Request) -> web.StreamResponse:
        return exchange.record_answer(await self._desk.curriculum(request.match_info["digest"]))

    async def manifest(self, request: web.Request) -> web.StreamResponse:
        return exchange.record_answer(await self._desk.manifest(int(request.match_info["version"])))

    async def outcomes(self, request: web.Request) -> web.StreamResponse:
        callers.required_caller(request, routes.OUTCOMES)
        after = exchange.whole_number(request, "after", -1, least=-1, most=MAX_VERSION)
        limit = exchange.whole_number(request, "limit", MAX_OUTCOMES, least=1, most=MAX_OUTCOMES)
        items = await self._desk.outcomes(after, limit, exchange.wait_s(request))
        return exchange.record_answer(Outcomes(items=items))

    async def open_slots(self, request: web.Request) -> web.StreamResponse:
        callers.required_caller(request, routes.OPEN_SLOTS)
        return exchange.record_answer(await self._desk.open_slots())

    async def put_chunk(self, request: web.Request) -> web.StreamResponse:
        callers.required_caller(request, routes.PUT_CHUNK)
        data = await exchange.read_buffer(request, routes.MAX_CHUNK_BYTES)
        await self._desk.put_chunk(request.match_info["sha256"], data)
        return exchange.record_answer(None)

    async def get_chunk(self, request: web.Request) -> web.StreamResponse:
        sha256 = request.match_info["sha256"]
        num_bytes = await self._desk.chunk_size(sha256)
        path = self._desk.chunk_path(sha256)
        if path is not None:  # from disk to socket by the kernel, through no memory of ours
            return web.FileResponse(path, headers={"Content-Type": routes.BYTES_TYPE})
        async with self._core.outgoing.hold(num_bytes, exchange.provider_of(request)):
            return await exchange.send_bytes(request, await self._desk.get_chunk(sha256))

    async def publish(self, request: web.Request) -> web.StreamResponse:
        callers.required_caller(request, routes.PUBLISH)
        await self._desk.publish(await exchange.read_record(request, Publication))
        return exchange.record_answer(None)

    async def last_publication(self, _request: web.Request) -> web.StreamResponse:
        return exchange.record_answer(await self._desk.last_publication())

    async def finish(self, request: web.Request) -> web.StreamResponse:
        callers.required_caller(request, routes.FINISH)
        self._core.finish()
        return exchange.record_answer(None)
