"""What the trainer and its own sampler processes tell each other, as frames on a socket pair.

    trainer -> sampler     Settings once, then Work for each slot
    sampler -> trainer     Ready once, then Sampled, Unworkable or Broken for each Work

A frame is its length (8 bytes, little endian) and a msgpack record. Both ends are processes of one program and one
person: lengths are believed, and nothing of this may ever come from another machine. Arrays travel as raw bytes in the
machine's own order.
"""

import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from farflung.wire.lease import Lease
from farflung.wire.manifest import Manifest
from farflung.wire.node import Heartbeat
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout import StopReason
from farflung.wire.verdict import RewardResult

LENGTH = struct.Struct("<Q")


class Settings(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Everything that a sampler is built from, weights aside."""

    name: str
    pool: PoolSpec
    policy_files: Mapping[str, bytes]
    """Config and tokenizer: the files of a policy that do not change."""
    max_batch_rows: int
    num_threads: int
    device: str
    """The trainer's."""
    activity_path: str
    """File for the intervals of its activity."""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """A version that lies in shared memory."""

    manifest: Manifest
    offset: int
    num_bytes: int
    num_base_bytes: int
    """At the beginning of the memory: the weights below an adapter; 0 = the version is whole weights."""


class Work(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Sample and grade a slot."""

    lease: Lease
    weights: Weights
    """Of the lease's version. They stay where they are until this work is answered."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The sampler is built; it asks for work."""


class Sampled(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The rollouts of a slot by (group, sample), R in all, with their grades."""

    slot: int
    env: str
    task_ids: tuple[str, ...]
    """One per group, as the next."""
    target_lengths: tuple[int, ...]
    prompts: tuple[bytes, ...]
    """[R] int32 ids."""
    lengths: tuple[int, ...]
    """[R] completion tokens."""
    tokens: bytes
    """int32 ids of all completions, one after another; as long as the logprobs."""
    logprobs: bytes
    """float32."""
    stop_reasons: tuple[StopReason, ...]
    """[R]"""
    results: tuple[RewardResult, ...]
    """[R]"""
    faults: dict[str, int]
    """What went wrong in grading -> completions without a reward for it."""
    heartbeat: Heartbeat


class Unworkable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The slot has a task that the pool's rules do not allow."""

    slot: int
    detail: str


class Broken(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing can be sampled, however often it is tried: a sentence for the person who wrote the environment."""

    sentence: str


ToSampler = Settings | Work
FromSampler = Ready | Sampled | Unworkable | Broken

_encoder = msgspec.msgpack.Encoder()


def to_frame(message: ToSampler | FromSampler) -> bytes:
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def decoder_of(kind: Any) -> "msgspec.msgpack.Decoder[Any]":
    """For `ToSampler` or `FromSampler`."""
    return msgspec.msgpack.Decoder(kind)
