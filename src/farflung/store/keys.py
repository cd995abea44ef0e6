"""Names of stored objects: `/`-separated parts of `[A-Za-z0-9._-]`, so that no key is a path out of the store."""

import re

from farflung.errors import PeerFault
from farflung.wire.canonical import MALFORMED_RECORD
from farflung.wire.limits import MAX_NAME_BYTES

_PART = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]+", re.ASCII)


def check_key(key: str) -> str:
    """The key itself.

    Raises:
        PeerFault: it is empty, too long, or has a part that is empty, `.`, `..` or made of other characters. Keys stand
            in foreign records, so a bad one is their author's fault.
    """
    if len(key) > MAX_NAME_BYTES or not all(_PART.fullmatch(part) for part in key.split("/")):
        raise PeerFault(MALFORMED_RECORD, f"{key[:MAX_NAME_BYTES]!r} is not a key")
    return key
