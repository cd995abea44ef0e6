"""Which relays a reader asks: a few of many, always the same ones, each in proportion to what it can send.

    score(reader, relay) = -weight / ln(h)        h = sha256(reader, relay) as a number in (0, 1)

The highest scores win (weighted rendezvous hashing, Thaler and Ravishankar 1998; the logarithm makes each relay's
share its weight's share). When a relay goes, only those who had it get another one. Nobody has to remember anything.
"""

import hashlib
import math
from collections.abc import Mapping

_BITS = 53


def choose(reader: str, weights: Mapping[str, float], count: int) -> list[str]:
    """At most `count` relays for a reader, the best first.

    Args:
        weights: relay -> what it can send, in any unit; one of 0 or less is never chosen.
    """
    scores = {relay: _score(reader, relay, weight) for relay, weight in weights.items() if weight > 0}
    return sorted(scores, key=lambda relay: (-scores[relay], relay))[:count]


def _score(reader: str, relay: str, weight: float) -> float:
    digest = hashlib.sha256(f"{len(reader)}:{reader}:{relay}".encode()).digest()
    drawn = ((int.from_bytes(digest[:8], "big") >> (64 - _BITS)) + 0.5) / 2**_BITS
    return -weight / math.log(drawn)
