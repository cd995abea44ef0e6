"""One opinion of math-verify, inside a child. Its "yes" counts only if it is confirmed.

The library's own time limits use signals and are turned off: the kernel's limits hold here. Its lenient roads are
closed as well: no text fallback, no search for expressions in prose, decimals exact, both texts in a box. Known wrong
verdicts of version 0.9 that `confirm` overrules: tiny differences (1/2004! beside 1/2006!), any common element, and 50
beside 50 %.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from math_verify import LatexExtractionConfig, parse, verify

from farflung.sandbox.math.confirm import confirms
from farflung.sandbox.math.decimals import with_exact_decimals
from farflung.sandbox.math.protocol import Reply

_CONFIG = (LatexExtractionConfig(),)

logging.disable(logging.CRITICAL)  # the library logs texts, and warns that its time limits are off


def opinion(gold: str, answer: str, on_gold_read: Callable[[], None]) -> Reply:
    """The word for one question; `on_gold_read` is called once the gold is known to be readable."""
    expected = _parsed(gold)
    if not expected:
        return Reply.GOLD_UNREADABLE
    expected[0].doit()  # a gold that cannot be evaluated ends here, before an answer could be blamed for it
    on_gold_read()
    found = _parsed(answer)
    if not found:
        return Reply.ANSWER_UNREADABLE
    if not verify(expected, found, allow_set_relation_comp=True, timeout_seconds=None):
        return Reply.DIFFERENT
    return Reply.EQUAL if confirms(expected[0], found[0]) else Reply.UNCONFIRMED


def _parsed(text: str) -> Sequence[Any]:
    """One foreign object, or none. It is never printed: that may take for ever."""
    boxed = rf"\boxed{{{with_exact_decimals(text)}}}"
    parsed: Sequence[Any] = parse(boxed, _CONFIG, fallback_mode="no_fallback", parsing_timeout=None)
    return parsed[:1]
