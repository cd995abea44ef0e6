"""Episodes before the validator: the honest twin passes, and each forgery of a transcript is found by its check."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from farflung.engine.base import SamplingParams
from farflung.engine.fake import FakeEngine
from farflung.engine.rounds import Seat, play
from farflung.envs.base import Environment
from farflung.envs.episode import AgentTurn, Ask, EpisodeGrade, Episodic
from farflung.envs.guess_letter import GuessLetter
from farflung.envs.playing import Episode, EpisodeLimits
from farflung.envs.take_away import TakeAway
from farflung.model.characters import character_tokenizer
from farflung.model.tokenizer import Tokenizer
from farflung.rl.types import RolloutGroup
from farflung.trainer.intake import IntakeRules, graded_groups
from farflung.validation.case import Case, JudgeRules, SlotEvidence, Transcript
from farflung.validation.checks import proof_shape
from farflung.validator.evidence import Judge
from farflung.wire.batch import SlotOutcome
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.proof import DEFAULT_RULES
from farflung.wire.rollout import Rollout, StopReason
from farflung.wire.rollout_file import write_rollouts
from farflung.wire.submission import Assignment
from farflung.wire.task import Task
from farflung.wire.verdict import Judgement, Outcome, RejectReason, SlotState
from running_pool import submission_for

GAME = TakeAway(0, {"max_pile": 12, "max_take": 3})
GUESSING = GuessLetter(0, {})
TASKS = (3, 7)


class Pool:
    """One slot of an environment, as an honest worker hands it in and as a validator judges it."""

    def __init__(self, environment: Environment, *, max_completion_tokens: int = 60) -> None:
        assert isinstance(environment, Episodic)
        alphabet = environment.alphabet()
        assert alphabet is not None
        self.environment: Environment = environment
        self.episodic: Episodic = environment
        self.tokenizer: Tokenizer = character_tokenizer(alphabet)
        (self.eos,) = self.tokenizer.eos_token_ids
        self.spec = PoolSpec(
            name="episodes",
            environment=EnvironmentSpec(
                name=environment.name, num_tasks=environment.num_tasks, num_agents=environment.num_agents
            ),
            tokenizer_digest=self.tokenizer.digest,
            model_config_digest=sha256_hex(b"config"),
            group_size=4,
            groups_per_slot=2,
            groups_per_batch=2,
            max_staleness=4,
            max_outstanding_groups=8,
            temperature=1.0,
            max_prompt_tokens=8,
            max_completion_tokens=max_completion_tokens,
            lease_s=60.0,
            max_attempts=3,
            max_file_bytes=1 << 18,
        )
        self.rules = JudgeRules(
            pool=self.spec,
            vocab_size=self.tokenizer.vocab_size,
            eos_token_ids=(self.eos,),
            reserved_token_ids=self.tokenizer.reserved_token_ids,
        )
        self.lease = Lease(
            pool_digest=self.spec.digest(),
            lease_id="2-0",
            slot=2,
            attempt=0,
            node="w",
            policy_version=0,
            policy_digest=sha256_hex(b"p"),
            task_indices=TASKS,
            target_lengths=(0, 0),
            draw_seed="5e" * 32,
            capability_class="any",
            issued_at_ms=0,
            expires_at_ms=1,
        )

    def seats(self) -> list[Seat]:
        limits = EpisodeLimits.of_pool(self.spec, (self.eos,))
        return [
            Seat(group=group, number=number, episode=Episode(self.tokenizer, self.episodic, task, limits))
            for group, task in enumerate(self.environment.task("train", index) for index in TASKS)
            for number in range(self.spec.group_size)
        ]

    def sampled(self) -> list[Rollout]:
        """Draws are legal moves more often than not, and letters from the middle."""
        seats = self.seats()
        drawn = {self.eos, *self.tokenizer.encode("123" if self.environment.name != GUESSING.name else "hijklmnop")}
        params = SamplingParams(
            max_completion_tokens=self.spec.max_completion_tokens,
            eos_token_ids=(self.eos,),
            reserved_token_ids=tuple(set(range(self.tokenizer.vocab_size)) - drawn),
        )
        play(FakeEngine(self.tokenizer.vocab_size), seats, params, bytes.fromhex(self.lease.draw_seed))
        return [rollout for seat in seats for rollout in self._rows(seat)]

    def judged(self, rollouts: Sequence[Rollout], **changes: Any) -> Judgement:
        data = write_rollouts(rollouts, self.spec.digest())
        submission = submission_for(self.lease, rollouts, data, "rollouts/2")
        judge = Judge(self.rules, self.environment, self.tokenizer, "v")
        return judge.judge(Assignment(submission=submission, lease=self.lease), data, 0, 0, **changes)

    def groups(self, rollouts: Sequence[Rollout]) -> tuple[RolloutGroup, ...]:
        """As the trainer takes them in."""
        data = write_rollouts(rollouts, self.spec.digest())
        judgement = self.judged(rollouts)
        outcome = SlotOutcome(
            sequence=0,
            slot=2,
            policy_version=0,
            state=SlotState.ACCEPTED,
            task_indices=TASKS,
            submission=submission_for(self.lease, rollouts, data, "rollouts/2"),
            verdict=judgement.verdict,
        )
        rules = IntakeRules(
            pool=self.spec,
            vocab_size=self.tokenizer.vocab_size,
            reserved_token_ids=self.tokenizer.reserved_token_ids,
        )
        return graded_groups(outcome, data, judgement.evidence, rules)

    def _rows(self, seat: Seat) -> list[Rollout]:
        from farflung.worker.sampler import rollouts_of

        return rollouts_of(seat, self.lease)


GAMES, GUESSES = Pool(GAME), Pool(GUESSING)


def with_row(rollouts: Sequence[Rollout], index: int, **changes: Any) -> list[Rollout]:
    return [replace(row, **changes) if position == index else row for position, row in enumerate(rollouts)]


def with_tokens(rollouts: Sequence[Rollout], index: int, tokens: NDArray[np.int32], **changes: Any) -> list[Rollout]:
    """Logprobs of what was drawn stay, as far as they go."""
    logprobs = np.full(len(tokens), -2.0, np.float32)
    old = rollouts[index].logprobs[: len(tokens)]
    logprobs[: len(old)] = old
    return with_row(rollouts, index, completion_tokens=tokens, logprobs=logprobs, **changes)


@pytest.mark.parametrize("pool", [GAMES, GUESSES], ids=["game", "guesses"])
def test_an_honest_worker_is_accepted_with_the_environments_rewards(pool: Pool) -> None:
    rollouts = pool.sampled()
    assert [(row.group, row.sample) for row in rollouts] == [
        (group, sample) for group in range(2) for sample in range(pool.spec.rollouts_per_group)
    ]
    judgement = pool.judged(rollouts)
    assert judgement.verdict.outcome is Outcome.ACCEPTED, judgement.evidence.detail
    results = judgement.evidence.rewards
    assert all(result.spans for result in results)
    assert {len(result.spans) for result in results} > {1} or len(results[0].spans) > 1
    for row, result in zip(rollouts, results, strict=True):
        drawn = np.zeros(len(row.logprobs), dtype=bool)
        for start, end in result.spans:
            drawn[start:end] = True
        assert not row.logprobs[~drawn].any()
        assert (row.logprobs[drawn] < 0).all()


def test_of_each_game_one_side_wins_and_is_told_so_in_its_own_row() -> None:
    results = GAMES.judged(GAMES.sampled()).evidence.rewards
    for first, second in zip(results[::2], results[1::2], strict=True):
        assert (first.correct or 0) + (second.correct or 0) == 1
        assert first.turn_rewards == second.turn_rewards == ()


def test_turns_of_a_guess_have_rewards_of_their_own() -> None:
    for result in GUESSES.judged(GUESSES.sampled()).evidence.rewards:
        assert len(result.turn_rewards) == len(result.spans)
        assert sum(result.turn_rewards) == pytest.approx(result.reward)


def test_agents_are_compared_with_their_own_kind_and_learn_from_their_own_words() -> None:
    rollouts = GAMES.sampled()
    groups = GAMES.groups(rollouts)
    assert [(group.group, group.agent, group.task_index) for group in groups] == [
        (0, 0, 3), (0, 1, 3), (1, 0, 7), (1, 1, 7)
    ]  # fmt: skip
    for group in groups:
        assert [row.sample % 2 for row in group.rollouts] == [group.agent] * 4
        assert group.turns is not None
        assert all(len(turns) == 1 for turns in group.turns)
    results = {(result.group, result.sample): result for result in GAMES.judged(rollouts).evidence.rewards}
    for group in groups:
        assert group.turns is not None
        for row, (turn,) in zip(group.rollouts, group.turns, strict=True):
            assert turn.spans == results[row.group, row.sample].spans
    guesses = GUESSES.groups(GUESSES.sampled())
    assert all(len(turns) > 1 for group in guesses for turns in group.turns or ())


# Forgeries. Row 0 is agent 0 of the first game; every game has at least two moves of each side.

Forgery = Callable[[list[Rollout]], list[Rollout]]


def _end_of_first_turn(row: Rollout) -> int:
    """Turns of the fake engine end at their limit or in an end-of-sequence id; what is told comes with logprob 0."""
    return int(np.flatnonzero(row.logprobs == 0)[0])


def mallory_who_leaves_the_game_early(rows: list[Rollout]) -> list[Rollout]:
    end = _end_of_first_turn(rows[0])
    tokens = rows[0].completion_tokens[:end]
    reason = StopReason.EOS if tokens[-1] == GAMES.eos else StopReason.LENGTH
    return with_tokens(rows, 0, tokens, stop_reason=reason)


def mallory_who_forges_what_she_was_told(rows: list[Rollout]) -> list[Rollout]:
    tokens = rows[0].completion_tokens.copy()
    tokens[_end_of_first_turn(rows[0])] = GAMES.tokenizer.encode("1")[0]
    told = GAMES.tokenizer.decode(rows[0].completion_tokens[_end_of_first_turn(rows[0]) :].tolist())
    if told.startswith("1"):
        tokens[_end_of_first_turn(rows[0])] = GAMES.tokenizer.encode("2")[0]
    return with_tokens(rows, 0, tokens)


def mallory_who_was_told_nothing(rows: list[Rollout]) -> list[Rollout]:
    drawn = rows[0].logprobs != 0
    tokens, logprobs = rows[0].completion_tokens[drawn], rows[0].logprobs[drawn]
    return with_row(rows, 0, completion_tokens=tokens, logprobs=logprobs)


def mallory_who_swaps_the_sides(rows: list[Rollout]) -> list[Rollout]:
    one, other = rows[0], rows[1]
    swapped = {"completion_tokens": other.completion_tokens, "logprobs": other.logprobs}
    back = {"completion_tokens": one.completion_tokens, "logprobs": one.logprobs}
    changed = with_row(rows, 0, **swapped, stop_reason=other.stop_reason)
    return with_row(changed, 1, **back, stop_reason=one.stop_reason)


def mallory_who_takes_her_best_side_from_another_game(rows: list[Rollout]) -> list[Rollout]:
    told = [row.completion_tokens[row.logprobs == 0].tolist() for row in rows[:8:2]]
    best = rows[2 * next(number for number, each in enumerate(told) if each != told[0])]
    return with_row(
        rows, 0, completion_tokens=best.completion_tokens, logprobs=best.logprobs, stop_reason=best.stop_reason
    )


def mallory_who_plays_on_after_the_end(rows: list[Rollout]) -> list[Rollout]:
    more = np.array([*GAMES.tokenizer.encode("1"), GAMES.eos], dtype=np.int32)
    tokens = np.concatenate([rows[0].completion_tokens, more])
    return with_tokens(rows, 0, tokens, stop_reason=StopReason.EOS)


def mallory_who_says_too_much_at_once(rows: list[Rollout]) -> list[Rollout]:
    long = np.array(GAMES.tokenizer.encode("1111"), dtype=np.int32)
    rest = rows[0].completion_tokens[_end_of_first_turn(rows[0]) :]
    tokens = np.concatenate([long, rest])
    zeros = rows[0].logprobs[_end_of_first_turn(rows[0]) :]
    logprobs = np.concatenate([np.full(4, -2.0, np.float32), zeros])
    return with_row(rows, 0, completion_tokens=tokens, logprobs=logprobs)


def mallory_with_a_hint_in_the_other_sides_prompt(rows: list[Rollout]) -> list[Rollout]:
    return with_row(rows, 1, prompt_tokens=np.concatenate([rows[1].prompt_tokens, rows[1].prompt_tokens[-1:]]))


def mallory_with_a_reserved_id_in_a_turn(rows: list[Rollout]) -> list[Rollout]:
    tokens = rows[0].completion_tokens.copy()
    tokens[0] = GAMES.tokenizer.reserved_token_ids[0]
    return with_tokens(rows, 0, tokens)


def mallory_with_a_hint_in_the_first_prompt(rows: list[Rollout]) -> list[Rollout]:
    return with_row(rows, 0, prompt_tokens=rows[0].prompt_tokens[1:])


def mallory_with_a_token_beyond_the_vocabulary(rows: list[Rollout]) -> list[Rollout]:
    tokens = rows[0].completion_tokens.copy()
    tokens[_end_of_first_turn(rows[0])] = 10**6
    return with_tokens(rows, 0, tokens)


def mallory_who_calls_the_end_of_a_row_something_else(rows: list[Rollout]) -> list[Rollout]:
    other = StopReason.EOS if rows[0].stop_reason is StopReason.LENGTH else StopReason.LENGTH
    return with_row(rows, 0, stop_reason=other)


def mallory_who_drew_what_she_was_told(rows: list[Rollout]) -> list[Rollout]:
    return with_row(rows, 0, logprobs=np.minimum(rows[0].logprobs, -0.5).astype(np.float32))


def mallory_who_is_certain_of_everything(rows: list[Rollout]) -> list[Rollout]:
    return [replace(row, logprobs=np.zeros(len(row.logprobs), np.float32)) for row in rows]


def mallory_who_hands_in_one_side_only(rows: list[Rollout]) -> list[Rollout]:
    return rows[::2]


FORGERIES: list[tuple[Forgery, RejectReason]] = [
    (mallory_who_leaves_the_game_early, RejectReason.TRANSCRIPT),
    (mallory_who_forges_what_she_was_told, RejectReason.TRANSCRIPT),
    (mallory_who_was_told_nothing, RejectReason.TRANSCRIPT),
    (mallory_who_swaps_the_sides, RejectReason.TRANSCRIPT),
    (mallory_who_takes_her_best_side_from_another_game, RejectReason.TRANSCRIPT),
    (mallory_who_plays_on_after_the_end, RejectReason.TRANSCRIPT),
    (mallory_who_says_too_much_at_once, RejectReason.TRANSCRIPT),
    (mallory_with_a_hint_in_the_other_sides_prompt, RejectReason.TRANSCRIPT),
    (mallory_with_a_reserved_id_in_a_turn, RejectReason.TRANSCRIPT),
    (mallory_with_a_hint_in_the_first_prompt, RejectReason.PROMPT),
    (mallory_with_a_token_beyond_the_vocabulary, RejectReason.TOKEN_RANGE),
    (mallory_who_calls_the_end_of_a_row_something_else, RejectReason.TERMINATION),
    (mallory_who_drew_what_she_was_told, RejectReason.LOGPROB_RANGE),
    (mallory_who_is_certain_of_everything, RejectReason.LOGPROB_RANGE),
    (mallory_who_hands_in_one_side_only, RejectReason.ROLLOUT_COUNT),
]


@pytest.mark.parametrize(("forge", "reason"), FORGERIES)
def test_each_forgery_of_an_episode_is_caught_by_its_check(forge: Forgery, reason: RejectReason) -> None:
    honest = GAMES.sampled()
    assert GAMES.judged(honest).verdict.outcome is Outcome.ACCEPTED
    judgement = GAMES.judged(forge(honest))
    assert judgement.verdict.reason is reason, judgement.evidence.detail
    assert judgement.verdict.outcome is Outcome.REJECTED


def test_an_episode_ends_where_no_turn_fits_and_not_before() -> None:
    tight = Pool(GAME, max_completion_tokens=9)
    rollouts = tight.sampled()
    assert max(len(row.completion_tokens) for row in rollouts) <= 9
    judgement = tight.judged(rollouts)
    assert judgement.verdict.outcome is Outcome.ACCEPTED, judgement.evidence.detail
    assert {result.correct for result in judgement.evidence.rewards} == {0.0}  # nobody could take the last counter


class Fails(TakeAway):
    """Breaks at the third turn of every game."""

    name = "fails"

    def next_ask(self, task: Task, turns: Sequence[AgentTurn]) -> Ask | None:
        if len(turns) == 3:
            raise ZeroDivisionError("a bug")
        return super().next_ask(task, turns)


def test_an_environment_that_breaks_in_play_costs_the_reward_and_nobodys_stake() -> None:
    pool = Pool(Fails(0, {"max_pile": 12, "max_take": 3}))
    judgement = pool.judged(pool.sampled())
    assert judgement.verdict.outcome is Outcome.ACCEPTED, judgement.evidence.detail
    assert {result.reward for result in judgement.evidence.rewards} == {None}
    assert judgement.verdict.measured["grading_fault/ZeroDivisionError"] == 16.0


def test_an_episode_that_was_given_up_has_no_reward_and_the_others_have_theirs() -> None:
    rollouts = GAMES.sampled()
    judgement = GAMES.judged(rollouts, given_up={2: "timeout"})
    assert judgement.verdict.outcome is Outcome.ACCEPTED
    results = judgement.evidence.rewards
    assert [result.reward is None for result in results] == [position in (2, 3) for position in range(16)]
    assert judgement.verdict.measured["grading_fault/timeout"] == 2.0
    assert results[2].spans == ()


def transcripts(spans: tuple[tuple[int, int], ...], rollouts: Sequence[Rollout]) -> list[Transcript]:
    return [Transcript(spans=spans) for _ in rollouts]


def test_of_an_episode_that_could_not_be_replayed_no_proof_is_asked() -> None:
    rollouts = GAMES.sampled()
    proven = msgspec.structs.replace(
        GAMES.spec, trust="proven", coordinator="0x" + 40 * "1", trainer="0x" + 40 * "2", proofs=DEFAULT_RULES
    )
    rules = replace(GAMES.rules, pool=proven)
    data = write_rollouts(rollouts, GAMES.spec.digest())
    cases = [
        Case(
            submission=submission_for(GAMES.lease, rollouts, data, "rollouts/2"),
            lease=GAMES.lease,
            rollouts=rollouts,
            rules=rules,
            evidence=SlotEvidence(
                env=GAME.name, task_ids=(), prompt_tokens=(), read_episodes=partial(transcripts, spans)
            ),
            current_version=0,
        )
        for spans in ((), ((0, 1),))
    ]
    assert proof_shape(cases[0]) is None
    assert "a proof of" in (proof_shape(cases[1]) or "")


class GradesNothing(TakeAway):
    name = "grades-nothing"

    def grade_episode(self, task: Task, turns: Sequence[AgentTurn]) -> tuple[EpisodeGrade, ...]:
        raise RuntimeError("no referee")


def test_the_control_plays_an_episode_of_empty_turns() -> None:
    Judge(GAMES.rules, GAME, GAMES.tokenizer, "v").control(GAMES.lease)
    with pytest.raises(Exception, match="no referee"):
        Judge(GAMES.rules, GradesNothing(0, {}), GAMES.tokenizer, "v").control(GAMES.lease)
