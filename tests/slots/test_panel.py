"""Several validators on one submission: who is drawn, what a vote is, what decides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.slots.illegal import IllegalEvent
from farflung.slots.panel import committed, decision, draw_panel, opened, revealed
from farflung.wire.canonical import sha256_hex
from farflung.wire.panel import Commitment
from farflung.wire.verdict import Outcome, RejectReason, Verdict
from panel_votes import REWARDS, SALT, SECRET, SUBMISSION, commitment, panel_of, vote, voted


def test_a_draw_does_not_depend_on_the_order_of_the_candidates_and_does_on_submission_and_round() -> None:
    names = [f"v{number}" for number in range(20)]
    drawn = draw_panel(SECRET, SUBMISSION, 0, names, 3)
    assert drawn == draw_panel(SECRET, SUBMISSION, 0, names[::-1], 3)
    assert len(set(drawn)) == 3
    others = {
        draw_panel(SECRET, SUBMISSION, 1, names, 3),
        draw_panel(SECRET, sha256_hex(b"another"), 0, names, 3),
        draw_panel(b"\x06" * 32, SUBMISSION, 0, names, 3),
    }
    assert drawn not in others
    assert len(others) == 3


def test_each_candidate_is_drawn_equally_often() -> None:
    names = [f"v{number}" for number in range(5)]
    counts = dict.fromkeys(names, 0)
    for number in range(2000):
        for name in draw_panel(SECRET, sha256_hex(b"%d" % number), 0, names, 2):
            counts[name] += 1
    # 800 each, with a standard deviation of sqrt(2000 * 0.4 * 0.6) = 22.
    assert all(abs(count - 800) < 100 for count in counts.values()), counts


@given(st.integers(1, 8), st.data())
def test_a_quorum_decides_and_no_two_do(size: int, data: st.DataObject) -> None:
    quorum = size // 2 + 1
    kinds = [None, RejectReason.SCHEMA, RejectReason.VERSION_WINDOW, RejectReason.VALIDATOR_FAULT]
    votes = [
        vote(f"v{n}", data.draw(st.sampled_from(kinds)), data.draw(st.sampled_from([REWARDS, "c" * 64])))
        for n in range(size)
    ]
    counted: dict[tuple[Outcome, str], list[Verdict]] = {}
    for each in votes:
        counted.setdefault((each.outcome, each.rewards_digest), []).append(each)
    agreeing = [same for (outcome, _), same in counted.items() if len(same) >= quorum and outcome != "unjudged"]
    assert decision(voted(*votes), quorum) == (agreeing[0][0] if agreeing else None)


def test_validators_that_could_not_judge_decide_nothing_however_many_they_are() -> None:
    votes = [vote(name, RejectReason.VALIDATOR_FAULT) for name in "abc"]
    assert decision(voted(*votes), 2) is None


def test_a_vote_is_bound_by_its_commitment_in_outcome_rewards_salt_and_validator() -> None:
    honest, other = vote("a"), vote("b")
    panel = opened(committed(committed(panel_of("a", "b"), commitment(honest)), commitment(other)), 20)
    for wrong, salt in (
        (vote("a", RejectReason.SCHEMA), SALT),
        (vote("a", rewards="c" * 64), SALT),
        (honest, "cd" * 32),
    ):
        with pytest.raises(IllegalEvent, match="another vote"):
            revealed(panel, wrong, salt)
    copied = opened(committed(panel_of("a", "b"), commitment(honest)), 20)
    with pytest.raises(IllegalEvent, match="another vote"):
        revealed(copied, vote("b"), SALT)
    assert revealed(panel, honest, SALT).votes == {"a": honest}


def test_a_copied_commitment_cannot_be_opened_by_its_thief() -> None:
    """The seal names its validator."""
    stolen = Commitment(
        pool_digest=sha256_hex(b"pool"),
        submission_digest=SUBMISSION,
        validator="b",
        sealed=commitment(vote("a")).sealed,
    )
    panel = opened(committed(panel_of("a", "b"), stolen), 20)
    with pytest.raises(IllegalEvent, match="another vote"):
        revealed(panel, vote("b"), SALT)


def test_no_vote_is_shown_while_others_commit_and_none_is_committed_to_afterwards() -> None:
    panel = committed(panel_of("a", "b"), commitment(vote("a")))
    with pytest.raises(IllegalEvent, match="may still commit"):
        revealed(panel, vote("a"), SALT)
    panel = opened(panel, 20)
    with pytest.raises(IllegalEvent, match="after votes were shown"):
        committed(panel, commitment(vote("b")))
    with pytest.raises(IllegalEvent, match="not drawn"):
        committed(panel, commitment(vote("c")))
    with pytest.raises(IllegalEvent, match="another vote before"):
        committed(panel, commitment(vote("a", RejectReason.SCHEMA)))
    with pytest.raises(IllegalEvent, match="opened once"):
        opened(panel, 30)
    assert panel.waits_for == ("a",)
    assert not panel.owes("b")
