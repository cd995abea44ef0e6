"""From HTTP to typed calls and back: bounded bodies, query parameters, and every error as an answer.

The `boundary` is the one place where errors become status codes: a refusal is the caller's fault (4xx with reason), all
else is ours (5xx, no details; they are in the log). This module does not know the operations.
"""

import asyncio
import logging
import re
from http import HTTPStatus
from typing import TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from farflung.api import routes
from farflung.api.errors import RefusalReason, Refused
from farflung.api.records import Refusal
from farflung.api.server import limits
from farflung.errors import OurFault, PeerFault, Transient
from farflung.wire.canonical import Record, sha256_hex

logger = logging.getLogger(__name__)

Expected = TypeVar("Expected", bound=Record)

BODY_SILENCE_S = 30.0
"""Longest pause in a body before the caller is given up."""
LEAST_BYTES_PER_S = 16 << 10
"""A body that comes more slowly, after as long as a pause may be, is given up too."""
PIECE_BYTES = 1 << 20
"""Of an answer, written before the caller must have taken most of the one before."""
MAX_MESSAGE_CHARS = 500
"""Of a refusal's sentence; it may quote the caller's own input."""
BODY_SHA256 = web.RequestKey("body_sha256", str)
"""What a signed call promises of its body, among the notes of a request."""
UNAVAILABLE = "unavailable"
TOO_MANY_REQUESTS = "too_many_requests"

_STATUS = {
    RefusalReason.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    RefusalReason.NO_ROUTE: HTTPStatus.NOT_FOUND,
    RefusalReason.NOT_FOUND: HTTPStatus.NOT_FOUND,
    RefusalReason.UNKNOWN_LEASE: HTTPStatus.NOT_FOUND,
    RefusalReason.UNKNOWN_SUBMISSION: HTTPStatus.NOT_FOUND,
    RefusalReason.BAD_TOKEN: HTTPStatus.UNAUTHORIZED,
    RefusalReason.BAD_SIGNATURE: HTTPStatus.FORBIDDEN,
    RefusalReason.WRONG_ROLE: HTTPStatus.FORBIDDEN,
    RefusalReason.NOT_ASSIGNED: HTTPStatus.CONFLICT,
    RefusalReason.WRONG_NODE: HTTPStatus.FORBIDDEN,
    RefusalReason.UNKNOWN_UPLOAD: HTTPStatus.FORBIDDEN,
    RefusalReason.WRONG_POLICY: HTTPStatus.CONFLICT,
    RefusalReason.LEASE_OVER: HTTPStatus.CONFLICT,
    RefusalReason.VERSION_ORDER: HTTPStatus.CONFLICT,
    RefusalReason.CHUNK_MISSING: HTTPStatus.CONFLICT,
    RefusalReason.BATCH_LINK: HTTPStatus.CONFLICT,
}


async def read_body(request: web.Request, max_bytes: int) -> bytes:
    """The request's body; refused as soon as it is too long, or when it stops coming."""
    return bytes(await read_buffer(request, max_bytes))


async def read_buffer(request: web.Request, max_bytes: int) -> bytearray:
    """As `read_body`, without the copy that makes it unchangeable."""
    if (request.content_length or 0) > max_bytes:
        raise Refused(RefusalReason.TOO_LARGE, f"{request.content_length} bytes announced, at most {max_bytes} allowed")
    body = bytearray()
    pieces = request.content.iter_any()
    now_s = asyncio.get_running_loop().time
    started_s = now_s()
    while True:
        slowest_s = started_s + BODY_SILENCE_S + len(body) / LEAST_BYTES_PER_S
        try:
            async with asyncio.timeout(min(BODY_SILENCE_S, slowest_s - now_s())):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise Refused(RefusalReason.BAD_REQUEST, f"body stopped or was too slow after {len(body)} bytes") from None
        if piece is None:
            await _check_promised(request, body)
            return body
        body += piece
        if len(body) > max_bytes:
            raise Refused(RefusalReason.TOO_LARGE, f"more than {max_bytes} bytes, which is the limit")


async def _check_promised(request: web.Request, body: bytearray) -> None:
    """The body of a signed call is the one that was signed."""
    promised = request.get(BODY_SHA256)
    if promised is not None and await asyncio.to_thread(sha256_hex, memoryview(body)) != promised:
        raise Refused(RefusalReason.BAD_SIGNATURE, "the body is not the one that was signed")


async def read_record(request: web.Request, expected: type[Expected]) -> Expected:
    return expected.from_bytes(await read_body(request, expected.MAX_BYTES))


def wait_s(request: web.Request) -> float:
    """How long the caller wants a long poll to be held, within the limit."""
    text = request.query.get("wait_s", "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise Refused(RefusalReason.BAD_REQUEST, f"wait_s is {text[:80]!r}: it must be a number of seconds, 0 or more")
    return min(seconds, routes.MAX_WAIT_S)


def whole_number(request: web.Request, name: str, default: int, *, least: int, most: int) -> int:
    """A query parameter in [least, most]."""
    text = request.query.get(name)
    if text is None:
        return default
    number = int(text) if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else None
    if number is None or not least <= number <= most:
        raise Refused(
            RefusalReason.BAD_REQUEST, f"{name} is {text[:80]!r}: it must be a whole number in [{least}, {most}]"
        )
    return number


def record_answer(record: Record | None) -> web.Response:
    """200 with the record; 204 without."""
    if record is None:
        return web.Response(status=HTTPStatus.NO_CONTENT)
    return web.Response(body=record.to_bytes(), content_type=routes.RECORD_TYPE)


def too_many_requests(per_s: float) -> web.Response:
    """For an address that has used up its share; the same call may succeed in a moment."""
    message = f"more than {per_s:g} calls per second from one address"
    answer = _refusal(HTTPStatus.TOO_MANY_REQUESTS, TOO_MANY_REQUESTS, message)
    answer.headers["Retry-After"] = "1"
    return answer


async def send_bytes(request: web.Request, data: bytes) -> web.StreamResponse:
    """Answer with raw bytes, in pieces, and return once they are taken."""
    answer = web.StreamResponse()
    answer.content_type = routes.BYTES_TYPE
    answer.content_length = len(data)
    await answer.prepare(request)
    for start in range(0, len(data), PIECE_BYTES):
        await answer.write(data[start : start + PIECE_BYTES])
    await answer.write_eof()
    return answer


def provider_of(request: web.Request) -> str | None:
    """Whom limits count the caller's address to; None = this machine."""
    return limits.provider_of(request.remote)


CALLER_LEFT = 499
"""What nginx calls it. Nobody reads it: raised further, it would be a fault of ours in the server's eyes."""


@web.middleware
async def boundary(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error into an answer."""
    try:
        return await handler(request)
    except Refused as refused:
        return _refusal(_status(refused.reason), refused.reason, refused.message)
    except PeerFault as fault:
        return _refusal(HTTPStatus.BAD_REQUEST, fault.reason, fault.detail)
    except web.HTTPException as error:
        return _refusal(
            HTTPStatus(error.status), RefusalReason.NO_ROUTE, f"{request.method} {request.path}: {error.reason}"
        )
    except Transient as error:
        logger.warning("%s %s: %s", request.method, request.path, error)
        return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, UNAVAILABLE, "the store is not available at the moment")
    except OurFault:
        logger.exception("%s %s", request.method, request.path)
        return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, UNAVAILABLE, "this server is in trouble, see its log")
    except ConnectionError as error:
        logger.info("%s %s: caller went away: %s", request.method, request.path, error)
        return web.Response(status=CALLER_LEFT)
    except Exception:  # a bug here must not show its insides to a stranger, nor stop the service
        logger.exception("%s %s", request.method, request.path)
        return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, UNAVAILABLE, "this server has a bug, see its log")


def _status(reason: str) -> HTTPStatus:
    known = reason in set(RefusalReason)
    return _STATUS.get(RefusalReason(reason), HTTPStatus.BAD_REQUEST) if known else HTTPStatus.BAD_REQUEST


def _refusal(status: HTTPStatus, reason: str, message: str) -> web.Response:
    body = Refusal(reason=reason, message=message[:MAX_MESSAGE_CHARS]).to_bytes()
    return web.Response(status=status, body=body, content_type=routes.RECORD_TYPE)
