"""What holds for every honest slot, and for every single thing that is changed in one.

Any prompt, any length and any draw seed: built, it passes. One byte of a proof, one token, another prompt, slot or
node: it fails, for a reason. And a verdict is a function of the file: not of what is judged beside it, before it or
after a restart.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from farflung.engine.base import GroupRequest
from farflung.slots.seeds import draw_seed
from farflung.validation.proof_checks import proof_problem
from farflung.wire.canonical import sha256_hex
from farflung.wire.proof import DEFAULT_RULES, RolloutFigures
from farflung.wire.rollout_file import read_rollouts, write_rollouts
from farflung.wire.verdict import Judgement, Outcome, RejectReason
from judged_work import NODE, POOL, HandedIn, changed, lease_of
from sampled_work import CONFIG, EOS, PARAMS, SEED, decoder_of, figures, handed_in, honest, policy, sampled

LIMITS = DEFAULT_RULES.reject
REFUSED = {RejectReason.ACTIVATIONS, RejectReason.DRAWS, RejectReason.LOGPROBS}
FEW = settings(max_examples=12)
SECRET = bytes(range(1, 33))


def by(node: str = NODE, slot: int = 3, attempt: int = 0) -> bytes:
    """The draw seed of a lease."""
    return draw_seed(SECRET, "ab" * 32, slot, node, attempt)


def told(judgement: Judgement) -> tuple[object, ...]:
    """A verdict without the last bits, which a kernel may give otherwise in another batch."""
    verdict = judgement.verdict
    return verdict.outcome, verdict.reason, {name: round(value, 2) for name, value in verdict.measured.items()}


@FEW
@given(st.lists(st.integers(4, 63), min_size=1, max_size=16), st.integers(1, 48), st.binary(min_size=32, max_size=32))
def test_what_was_built_passes(prompt: list[int], max_tokens: int, seed: bytes) -> None:
    asked = [GroupRequest(group=0, prompt_tokens=np.array(prompt, np.int32), num_samples=4)]
    made = sampled(params=replace(PARAMS, max_completion_tokens=max_tokens), draw_seed=seed, asked=asked)
    rows = [replace(row, prompt_tokens=asked[0].prompt_tokens) for row in handed_in(made, draw_seed=seed)]
    assert proof_problem(figures(rows, draw_seed=seed), LIMITS) is None


@FEW
@given(st.integers(0, 7), st.data())
def test_a_changed_byte_of_a_proof_is_seen_once_it_is_more_than_rounding(index: int, data: st.DataObject) -> None:
    row = honest()[index]
    place = data.draw(st.integers(0, len(row.proof) - 1))
    change = data.draw(st.integers(40, 216))
    proof = row.proof[:place] + bytes([(row.proof[place] + change) % 256]) + row.proof[place + 1 :]
    assert HandedIn(rows=changed(index, proof=proof)).reason is RejectReason.ACTIVATIONS


@FEW
@given(st.integers(0, 7), st.data())
def test_two_tokens_that_change_places_are_seen(index: int, data: st.DataObject) -> None:
    tokens = honest()[index].completion_tokens[:-1]
    first = data.draw(st.integers(0, len(tokens) - 2))
    second = data.draw(st.integers(first + 1, len(tokens) - 1))
    if tokens[first] == tokens[second]:
        return
    swapped = honest()[index].completion_tokens.copy()
    swapped[[first, second]] = swapped[[second, first]]
    assert HandedIn(rows=changed(index, completion_tokens=swapped)).reason in REFUSED


@FEW
@given(st.integers(0, 7), st.data())
def test_any_other_token_is_seen(index: int, data: st.DataObject) -> None:
    row = honest()[index]
    place = data.draw(st.integers(0, len(row.completion_tokens) - 2))
    other = data.draw(st.integers(4, CONFIG.vocab_size - 1))
    if other == row.completion_tokens[place]:
        return
    tokens = row.completion_tokens.copy()
    tokens[place] = other
    assert HandedIn(rows=changed(index, completion_tokens=tokens)).reason in REFUSED


@FEW
@given(st.integers(0, 7), st.lists(st.integers(4, 63), min_size=1, max_size=16))
def test_another_prompt_is_refused_and_would_be_seen(index: int, prompt: list[int]) -> None:
    tokens = np.array(prompt, np.int32)
    if np.array_equal(tokens, honest()[index].prompt_tokens):
        return
    rows = changed(index, prompt_tokens=tokens)
    assert HandedIn(rows=rows).reason is RejectReason.PROMPT
    assert proof_problem(figures(rows), LIMITS) is not None


@pytest.mark.parametrize(
    "other",
    [by(slot=4), by(node="0x" + "5" * 40), by(attempt=1), bytes(32)],
    ids=["another slot", "another node", "another attempt", "another secret"],
)
def test_work_of_another_lease_is_seen(other: bytes) -> None:
    """The same tasks and prompts, drawn honestly: only the seed that follows from the lease is another."""
    rows = handed_in(sampled(draw_seed=by()), draw_seed=by())
    lease = lease_of(POOL, draw_seed=by().hex())
    assert HandedIn(rows=rows, lease=lease).reason is None
    assert HandedIn(rows=rows, lease=with_fields(lease, draw_seed=other.hex())).reason is RejectReason.ACTIVATIONS


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 255))
def test_a_file_that_changed_after_the_claim_is_refused_by_its_digest(place: int, change: int) -> None:
    data = write_rollouts(honest(), POOL.digest())
    place %= len(data)
    forged = data[:place] + bytes([data[place] ^ change]) + data[place + 1 :]
    claimed = {"file_digest": sha256_hex(data), "file_bytes": len(data)}
    assert HandedIn(data=forged, changes=claimed).reason is RejectReason.FILE_DIGEST


@pytest.mark.parametrize("order", [[1, 0], [0, 1], [0, 0, 1, 1]])
def test_verdicts_do_not_depend_on_what_is_judged_before(order: Sequence[int]) -> None:
    work = [HandedIn(), HandedIn(rows=changed(0, proof=bytes(len(honest()[0].proof))))]
    expected = [told(each.judged()) for each in work]
    assert [told(work[which].judged()) for which in order] == [expected[which] for which in order]
    assert [outcome for outcome, *_ in expected] == [Outcome.ACCEPTED, Outcome.REJECTED]


def test_figures_do_not_depend_on_the_batch_nor_on_its_order() -> None:
    """Alone, with all others, and backwards: the same to the last bits of float32."""
    rows = honest()
    together, backwards = figures(rows), figures(rows[::-1])[::-1]
    alone = [found for row in rows for found in figures([row])]
    for found in (backwards, alone):
        assert [rounded(each) for each in found] == [rounded(each) for each in together]


def rounded(found: RolloutFigures) -> tuple[object, ...]:
    chunks = tuple(round(distance, 2) for distance in found.activation_chunks)
    return found.group, found.sample, found.num_tokens, chunks, round(found.max_margin, 3), round(found.surprise, 2)


def test_a_restart_changes_nothing() -> None:
    """Another process has another decoder, loaded anew, and the file as it was stored."""
    data = write_rollouts(honest(), POOL.digest())
    rows = read_rollouts(data, pool_digest=POOL.digest())
    before, after = figures(honest()), figures(rows, decoder=decoder_of(policy()))
    assert after == before
    first, second = HandedIn(data=data).judged(), HandedIn(rows=rows).judged()
    assert (first.verdict, first.evidence) == (second.verdict, second.evidence)


def test_the_slot_of_these_tests_has_rows_of_several_lengths() -> None:
    """Else half of the above would say little."""
    lengths = {len(row.completion_tokens) for row in honest()}
    assert len(lengths) >= 3
    assert any(row.completion_tokens[-1] in EOS for row in honest())
    assert by() != SEED
