"""What parent and child say to each other: a question is `[gold, answer]`, a reply is one of these words.

    child  -> parent   ready
    parent -> child    [gold, answer]
    child  -> parent   gold_read      then exactly one of the last words; without it, the gold is to blame
    child  -> parent   equal | different | unconfirmed | gold_unreadable | answer_unreadable | out_of_memory

This module does not know sockets or processes.
"""

from enum import StrEnum

MAX_REPLY_BYTES = 64
"""Longest reply; anything longer is a broken child."""


class Reply(StrEnum):
    """A child's words."""

    READY = "ready"
    GOLD_READ = "gold_read"
    EQUAL = "equal"
    DIFFERENT = "different"
    UNCONFIRMED = "unconfirmed"
    """The library said "equal", and its reasons did not stand: too few digits, a part only, another kind of thing."""
    GOLD_UNREADABLE = "gold_unreadable"
    ANSWER_UNREADABLE = "answer_unreadable"
    OUT_OF_MEMORY = "out_of_memory"


LAST_WORDS = frozenset(Reply) - {Reply.READY, Reply.GOLD_READ}
"""Replies that end a question."""
