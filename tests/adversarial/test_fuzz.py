"""Fuzz targets: whatever the bytes, there is a value or a fault of the peer, in bounded time and memory.

    a rollout file     bytes changed anywhere, and in the footer and page headers on purpose
    a proof            any bytes, near the right length and with plausible headers
    a signature        any text, and such as could be one
    a claim            JSON near a submission

Seeds are fixed; the slow run takes fifty times as many.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from farflung.errors import PeerFault
from farflung.identity.keys import key_from_bytes
from farflung.identity.signing import sign, signer_of
from farflung.proofs import scheme
from farflung.proofs.shape import TOPLOC_BYTES_PER_CHUNK, proof_bytes, shape_problem
from farflung.wire.proof import Scheme
from farflung.wire.rollout_file import read_rollouts, write_rollouts
from farflung.wire.submission import Submission
from judged_work import POOL
from limits import bounded
from sampled_work import SEED, honest

EXAMPLES, MANY = 150, 5000
MAX_S = 10.0
"""A hang; honest ones take milliseconds."""
MAX_BYTES = 64 << 20
WIDTH = 24
FILE = write_rollouts(honest(), POOL.digest())
FOOTER_BYTES = int.from_bytes(FILE[-8:-4], "little") + 8
KEY = key_from_bytes(b"\x01" * 32)
SIGNED = sign(
    Submission(
        pool_digest="ab" * 32, node="w", lease_id="0-0", slot=0, attempt=0, policy_version=0, policy_digest="cd" * 32,
        file_key="rollouts/0", file_digest="ef" * 32, file_bytes=5, num_rollouts=4, num_tokens=9,
    ),
    KEY,
)  # fmt: skip


def places(length: int, tail: int) -> st.SearchStrategy[int]:
    """Anywhere, and at the end as often: footers lie there."""
    return st.integers(0, length - 1) | st.integers(length - tail, length - 1)


EDITS = st.lists(
    st.tuples(places(len(FILE), FOOTER_BYTES), st.binary(max_size=6), st.integers(0, 6)), min_size=1, max_size=6
)
WHOLE_FOOTERS = st.binary(max_size=300)


def edited(edits: list[tuple[int, bytes, int]]) -> bytes:
    data = bytearray(FILE)
    for place, replacement, num_removed in sorted(edits, reverse=True):
        data[place : place + num_removed] = replacement
    return bytes(data)


def file_target(data: bytes) -> None:
    with bounded(max_s=MAX_S, max_bytes=MAX_BYTES):
        try:
            rows = read_rollouts(data, pool_digest=POOL.digest(), max_rollouts=8, max_tokens_per_list=64)
        except PeerFault:
            return
    assert len(rows) <= 8
    for row in rows:
        assert 0 < len(row.completion_tokens) == len(row.logprobs) <= 64
        assert np.isfinite(row.logprobs).all()


def footer_target(footer: bytes) -> None:
    """Any footer with its length and magic right, so that it is parsed."""
    file_target(FILE[:-FOOTER_BYTES] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def proof_target(which: Scheme, proof: bytes, num_tokens: int) -> None:
    states_TD = torch.randn(num_tokens, WIDTH, generator=torch.Generator().manual_seed(num_tokens))
    with bounded(max_s=MAX_S, max_bytes=MAX_BYTES):
        if problem := shape_problem(which, proof, num_tokens):
            assert problem
            with pytest.raises(ValueError, match=r"bytes|modulus|coefficient"):
                scheme.compare(which, proof, states_TD, SEED, 0, 0)
            return
        found = scheme.compare(which, proof, states_TD, SEED, 0, 0)
    assert np.isfinite(found.distances).all()
    assert min(found.distances) >= 0


def signature_target(signature: str) -> None:
    with bounded(max_s=MAX_S, max_bytes=MAX_BYTES):
        try:
            signer = signer_of(msgspec.structs.replace(SIGNED, signature=signature))
        except PeerFault:
            return
    assert len(signer) == 42
    if signature != SIGNED.signature:
        assert signer != KEY.address, "a second signature by a key that made one"


def claim_target(body: bytes) -> None:
    with bounded(max_s=MAX_S, max_bytes=MAX_BYTES):
        try:
            claim = Submission.from_bytes(body)
        except PeerFault:
            return
    assert Submission.from_bytes(claim.to_bytes()) == claim


@st.composite
def proofs(draw: st.DrawFn) -> tuple[Scheme, bytes, int]:
    """Any bytes; of the right length often, in the published format with a plausible modulus."""
    which: Scheme = draw(st.sampled_from(("sketch", "toploc")))
    num_tokens = draw(st.integers(1, 70))
    length = proof_bytes(which, num_tokens)
    if draw(st.booleans()):
        return which, draw(st.binary(max_size=600)), num_tokens
    proof = bytearray(np.random.default_rng(draw(st.integers(0, 2**32 - 1))).bytes(length))
    if which == "toploc":
        for start in range(0, length, TOPLOC_BYTES_PER_CHUNK):
            proof[start : start + 2] = draw(st.integers(32_760, 65_535)).to_bytes(2, "big")
            if draw(st.booleans()):
                proof[start + 2 : start + TOPLOC_BYTES_PER_CHUNK] = bytes(TOPLOC_BYTES_PER_CHUNK - 2)
    return which, bytes(proof), num_tokens


SIGNATURES = (
    st.text(max_size=140)
    | st.text(alphabet="0123456789abcdef", min_size=130, max_size=130)
    | st.tuples(st.binary(min_size=64, max_size=64), st.integers(25, 30))
    .map(lambda pair: (pair[0] + bytes([pair[1]])).hex())
    | st.tuples(st.integers(0, 129), st.sampled_from("0123456789abcdefgG "))
    .map(lambda edit: SIGNED.signature[: edit[0]] + edit[1] + SIGNED.signature[edit[0] + 1 :])
)  # fmt: skip
CLAIMS = st.tuples(places(len(SIGNED.to_bytes()), 40), st.binary(max_size=8), st.integers(0, 8)).map(
    lambda edit: SIGNED.to_bytes()[: edit[0]] + edit[1] + SIGNED.to_bytes()[edit[0] + edit[2] :]
)
TARGETS: dict[str, tuple[st.SearchStrategy[Any], Callable[..., None]]] = {
    "a rollout file": (EDITS.map(edited), file_target),
    "a footer": (WHOLE_FOOTERS, footer_target),
    "a proof": (proofs(), lambda found: proof_target(*found)),
    "a signature": (SIGNATURES, signature_target),
    "a claim": (CLAIMS, claim_target),
}


def fuzzed(name: str, num_examples: int) -> None:
    values, target = TARGETS[name]

    @seed(7)
    @settings(max_examples=num_examples, database=None)
    @given(values)
    def run(value: Any) -> None:
        target(value)

    run()


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_give_a_value_or_the_peers_fault(name: str) -> None:
    fuzzed(name, EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_more_bytes_do(name: str) -> None:
    fuzzed(name, MANY)
