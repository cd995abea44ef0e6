"""Calls that show who makes them: every request of a node is signed with its key (DESIGN section 9).

    signature over   {pool, method, target, sha256 of the body, time, nonce}       EIP-712, as every record (`identity`)

The receiver takes a call once, from the node whose key signed it, for this pool, within `WINDOW_MS` of its own clock; a
nonce is remembered for longer than a call is taken. What signs keeps its clock by the other side's (`ServerClock`).
This module reads no sockets.
"""

import email.utils
import re
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import ClassVar

from farflung.api.errors import RefusalReason, Refused
from farflung.errors import PeerFault
from farflung.identity.keys import NodeKey
from farflung.identity.signing import check_signer, sign
from farflung.wire.canonical import Record
from farflung.wire.invariants import require_counts, require_digests

AT_HEADER = "X-Farflung-At"
NONCE_HEADER = "X-Farflung-Nonce"
BODY_HEADER = "X-Farflung-Body"
SIGNATURE_HEADER = "X-Farflung-Signature"

WINDOW_MS = 60_000
"""How far a call's time may be from the receiver's, either way."""
NONCE_MS = 2 * WINDOW_MS + 1000
"""How long a nonce is remembered: no call is taken any more by then."""
MAX_NONCES = 1 << 17
"""Remembered at once; a call that finds no room is asked to come again."""
_NONCE = re.compile(r"[0-9a-f]{32}", re.ASCII)
_AT = re.compile(r"\d{1,15}", re.ASCII)


class Call(Record, frozen=True, kw_only=True):
    """One request, as it is signed."""

    DOMAIN: ClassVar[str] = "farflung/call/1"

    pool_digest: str
    method: str
    target: str
    """Path and query, as sent."""
    body_sha256: str
    at_ms: int
    nonce: str
    signature: str = ""

    def __post_init__(self) -> None:
        require_digests(pool_digest=self.pool_digest, body_sha256=self.body_sha256)
        require_counts(at_ms=self.at_ms)


def signing_headers(
    key: NodeKey, pool_digest: str, method: str, target: str, body_sha256: str, at_ms: int
) -> dict[str, str]:
    """What to send with a call, beside its node; another nonce each time."""
    call = Call(
        pool_digest=pool_digest,
        method=method,
        target=target,
        body_sha256=body_sha256,
        at_ms=at_ms,
        nonce=secrets.token_hex(16),
    )
    return {
        AT_HEADER: str(call.at_ms),
        NONCE_HEADER: call.nonce,
        BODY_HEADER: call.body_sha256,
        SIGNATURE_HEADER: sign(call, key).signature,
    }


def read_call(headers: Mapping[str, str], pool_digest: str, method: str, target: str) -> Call:
    """The call that a request's headers claim.

    Raises:
        Refused: one of them is missing or malformed.
    """
    at, nonce = headers.get(AT_HEADER, ""), headers.get(NONCE_HEADER, "")
    if not _AT.fullmatch(at) or not _NONCE.fullmatch(nonce):
        raise Refused(RefusalReason.BAD_SIGNATURE, "nodes of this pool sign their calls: install a newer release")
    try:
        return Call(
            pool_digest=pool_digest,
            method=method,
            target=target,
            body_sha256=headers.get(BODY_HEADER, ""),
            at_ms=int(at),
            nonce=nonce,
            signature=headers.get(SIGNATURE_HEADER, ""),
        )
    except ValueError as error:
        raise Refused(RefusalReason.BAD_SIGNATURE, str(error)) from None


class NonceBook:
    """Nonces of calls that were taken, oldest first; bounded."""

    def __init__(self, max_nonces: int = MAX_NONCES) -> None:
        self._max_nonces = max_nonces
        self._until_ms: OrderedDict[str, int] = OrderedDict()

    def check(self, call: Call, node: str, now_ms: int) -> bool:
        """Take the call; False when there is no room for its nonce now.

        Raises:
            Refused: too old, of the future, taken before, or not signed by `node`.
        """
        if abs(now_ms - call.at_ms) > WINDOW_MS:
            raise Refused(
                RefusalReason.BAD_SIGNATURE,
                f"the call is of {call.at_ms}, it is {now_ms} here: set your clock",
            )
        try:
            check_signer(call, node)
        except PeerFault as fault:
            raise Refused(RefusalReason.BAD_SIGNATURE, fault.detail) from fault
        self._forget(now_ms)
        if call.nonce in self._until_ms:
            raise Refused(RefusalReason.BAD_SIGNATURE, "this very call was taken before")
        if len(self._until_ms) >= self._max_nonces:
            return False
        self._until_ms[call.nonce] = now_ms + NONCE_MS
        return True

    def _forget(self, now_ms: int) -> None:
        while self._until_ms:
            nonce, until_ms = next(iter(self._until_ms.items()))
            if until_ms > now_ms:
                return
            del self._until_ms[nonce]


class ServerClock:
    """The other side's time by the `Date` of its answers, to the second: a volunteer's clock may be off by hours."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def heard(self, date: str | None, now_ms: int) -> None:
        """An answer came, and it was `now_ms` here."""
        try:
            told_ms = round(email.utils.parsedate_to_datetime(date or "").timestamp() * 1000)
        except ValueError:
            return
        if abs(told_ms - now_ms - self._ahead_ms) > 2000:  # it has whole seconds, and came a while ago
            self._ahead_ms = told_ms - now_ms

    def now_ms(self, now_ms: int) -> int:
        """What the other side's clock should show."""
        return now_ms + self._ahead_ms
