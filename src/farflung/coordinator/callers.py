"""Who calls, and whether he may: the headers of a request against the roles of a route."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from farflung.api import routes
from farflung.api.errors import RefusalReason, Refused
from farflung.api.routes import Route
from farflung.api.server import exchange
from farflung.api.signed_calls import NonceBook, read_call
from farflung.api.tokens import TOKEN_ROLES, VARIABLE, is_token_of
from farflung.wire.node import Role


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """Who says that he calls. A trainer or validator has shown a token; of workers an open pool believes it."""

    node: str
    role: Role


def caller_of(request: web.Request) -> Caller | None:
    """The caller by the headers; None when they are absent."""
    node, role = request.headers.get(routes.NODE_HEADER), request.headers.get(routes.ROLE_HEADER)
    if node is None and role is None:
        return None
    if node is None or not re.fullmatch(routes.NODE_PATTERN, node, re.ASCII):
        raise Refused(RefusalReason.BAD_REQUEST, f"node {node!r} must match {routes.NODE_PATTERN}")
    if role not in set(Role):
        raise Refused(RefusalReason.BAD_REQUEST, f"role {role!r} must be one of {', '.join(Role)}")
    return Caller(node=node, role=Role(role))


def check_token(request: web.Request, caller: Caller, tokens: Mapping[Role, str]) -> None:
    """Refuse a trainer or validator that does not show the token of the role."""
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    if caller.role not in TOKEN_ROLES or (
        scheme == routes.TOKEN_SCHEME and is_token_of(caller.role, tokens, shown.strip())
    ):
        return
    raise Refused(
        RefusalReason.BAD_TOKEN,
        f"a {caller.role} has to show this pool's {caller.role} token, and {'another' if shown else 'none'} came: "
        f"start it with --token-file FILE or {VARIABLE}; the file is tokens/{caller.role} in the coordinator's run "
        "folder",
    )


def check_signed(request: web.Request, caller: Caller, pool_digest: str, nonces: NonceBook, now_ms: int) -> bool:
    """Refuse a call that the caller's own key did not sign; False when it should be made again later."""
    call = read_call(request.headers, pool_digest, request.method, request.raw_path)
    if not nonces.check(call, caller.node, now_ms):
        return False
    request[exchange.BODY_SHA256] = call.body_sha256
    return True


def required_caller(request: web.Request, route: Route) -> Caller:
    """The caller, in one of the route's roles."""
    caller = caller_of(request)
    assert route.roles is not None, f"{route.path} is for anyone"
    if caller is None or caller.role not in route.roles:
        found = "nobody in particular" if caller is None else f"a {caller.role}"
        raise Refused(
            RefusalReason.WRONG_ROLE,
            f"{route.method} {route.path} is for {', '.join(sorted(route.roles))}, not {found}",
        )
    return caller


def check_is_caller(node: str, caller: Caller) -> None:
    """Nobody speaks for another node."""
    if node != caller.node:
        raise Refused(RefusalReason.WRONG_NODE, f"the record is {node!r}'s, the caller is {caller.node}")
