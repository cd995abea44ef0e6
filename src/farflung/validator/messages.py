"""What a validator and its judging process say to each other, over two pipes, in frames of length and msgpack.

Neither side unpickles anything. The process runs an environment and parses strangers' files, so what it answers is read
within a bound and checked like any foreign record.
"""

import os
from typing import TypeVar

import msgspec

from farflung.errors import OurFault
from farflung.wire.limits import MAX_UNCOMPRESSED_BYTES
from farflung.wire.pool import PoolSpec
from farflung.wire.proof import RolloutFigures
from farflung.wire.rollout import Rollout
from farflung.wire.submission import Assignment
from farflung.wire.verdict import Judgement

MAX_TOLD_BYTES = max(Judgement.MAX_BYTES, MAX_UNCOMPRESSED_BYTES) + (1 << 16)
"""A judgement, or the rows of a file."""
_LENGTH_BYTES = 8

Message = TypeVar("Message", bound=msgspec.Struct)


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Sent once, after the start."""

    pool: PoolSpec
    files: dict[str, bytes]
    """The small files of any version."""
    validator: str
    step_s: float
    """Longest that one step may take: to read a file, to build tasks, to grade one completion."""
    max_bytes: int
    """Of address space."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One submission to judge, or to grade an empty completion of its tasks as a control."""

    assignment: Assignment
    data: bytes | None
    current_version: int
    now_ms: int
    is_control: bool = False
    given_up: dict[int, str] = {}
    """Rollouts that are not to be graded again -> what went wrong."""


class ClaimedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout that passed the cheap checks, for the validator's model."""

    group: int
    sample: int
    prompt_tokens: bytes
    """int32, little-endian, as `completion_tokens`."""
    completion_tokens: bytes
    logprobs: bytes
    """float32."""
    proof: bytes
    spans: tuple[tuple[int, int], ...]


class Computed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `Told.claims`."""

    figures: tuple[RolloutFigures, ...] = ()
    fault: str = ""
    """Why there are none."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `Setup` or `Ask`."""

    claims: tuple[ClaimedRow, ...] | None = None
    """Not an answer yet: the process waits for what these look like beside the policy."""
    judgement: Judgement | None = None
    user_error: str = ""
    """The person who runs this validator has to change something."""
    own_fault: str = ""
    """The process could not judge, or the environment failed the control."""
    first_fault: str = ""
    """What the environment said when it first failed to grade; for the log."""
    cpu_s: float = 0.0
    """Of the process since its start."""


def claimed_row(rollout: Rollout, spans: tuple[tuple[int, int], ...]) -> ClaimedRow:
    return ClaimedRow(
        group=rollout.group,
        sample=rollout.sample,
        prompt_tokens=rollout.prompt_tokens.astype("<i4").tobytes(),
        completion_tokens=rollout.completion_tokens.astype("<i4").tobytes(),
        logprobs=rollout.logprobs.astype("<f4").tobytes(),
        proof=rollout.proof,
        spans=spans,
    )


def send(fd: int, message: msgspec.Struct) -> None:
    """Raises `BrokenPipeError` when nobody is there."""
    data = msgspec.msgpack.encode(message)
    rest = memoryview(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def receive(fd: int, expected: type[Message], max_bytes: int) -> Message:
    """Raises `EOFError` when the other side is gone, `OurFault` when it talks nonsense."""
    length = int.from_bytes(_read(fd, _LENGTH_BYTES), "big")
    if length > max_bytes:
        raise OurFault(f"the judging process answered {length} bytes, at most {max_bytes} expected")
    try:
        return msgspec.msgpack.decode(_read(fd, length), type=expected)
    except msgspec.MsgspecError as error:
        raise OurFault(f"the judging process answered nonsense: {error}") from error


def _read(fd: int, num_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < num_bytes:
        piece = os.read(fd, min(num_bytes - len(data), 1 << 20))
        if not piece:
            raise EOFError("the other side is gone")
        data += piece
    return bytes(data)
