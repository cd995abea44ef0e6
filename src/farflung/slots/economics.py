"""How often to look, so that cheating loses money.

    s     what cheating saves on one submission                 all in units of s
    L     what a caught node loses: stake + n * reward          rewards of the last n submissions are held back
    a     rate * detection                                      chance that a bad submission is caught
    P(k)  1 - (1 - a)^k                                         chance that one of k bad ones is

Cheating k of n submissions does not pay when k * s < P(k) * L. P is concave, so it is enough to look at the ends:

    k = 1:   a > 1 / L                      k = n:   P(n) > n / L,  that is  a > 1 - (1 - n / L)^(1 / n)

After Golle and Mironov, "Uncheatable Distributed Computations" (CT-RSA 2001), and Golle and Stubblebine, "Secure
Distributed Computing in a Commercial Environment" (2001), who pay out late for the same reason. This module does not
know money; it is a ratio that the rules state.
"""

import math

DETECTION = 0.9
"""Chance that an audit sees a bad submission, assumed on the careful side: sampling again finds what was not drawn."""


def least_rate(stake: float, *, reward: float = 1.0, window: int = 100, detection: float = DETECTION) -> float:
    """The smallest rate at which no number of bad submissions pays.

    Args:
        stake: what a caught node loses beside held rewards, in what cheating saves on one submission.
        reward: of one submission, likewise.
        window: submissions whose rewards are held back.

    Returns:
        A rate in [0, 1]; 1 where only looking at everything deters, or not even that.
    """
    loss = stake + window * reward
    if loss <= 1 or loss <= window:
        return 1.0
    per_item = max(1 / loss, -math.expm1(math.log1p(-window / loss) / window))
    return min(1.0, per_item / detection)


def items_until_caught(rate: float, confidence: float, *, detection: float = DETECTION) -> int:
    """Bad submissions after which somebody who makes nothing else is caught with this confidence."""
    return math.ceil(math.log(1 - confidence) / math.log1p(-rate * detection))
