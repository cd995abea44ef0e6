from dataclasses import replace

import numpy as np
import pytest

from farflung.rl.types import RolloutGroup
from farflung.trainer.samples import batch_items, group_rewards, training_set
from farflung.wire.canonical import sha256_hex
from farflung.wire.submission import Submission
from tiny_pool import batch_of, pool_spec, sampled_groups, tiny_policy

Rewards = tuple[float | None, ...]


def slot_with(slot: int, *rewards: Rewards, correct: Rewards | None = None) -> list[RolloutGroup]:
    """One slot of two groups with these rewards."""
    groups = sampled_groups(tiny_policy(), pool_spec(), slot=slot)
    return [
        replace(group, rewards=values, correct=values if correct is None else correct)
        for group, values in zip(groups, rewards, strict=True)
    ]


def submission(slot: int) -> Submission:
    digest = sha256_hex(b"%d" % slot)
    return Submission(
        pool_digest=digest,
        node="w",
        lease_id=f"{slot}-0",
        slot=slot,
        attempt=0,
        policy_version=0,
        policy_digest=digest,
        file_key=f"rollouts/{slot}",
        file_digest=digest,
        file_bytes=1,
        num_rollouts=1,
        num_tokens=1,
    )


def test_groups_with_signal_become_samples_and_the_others_are_counted_by_reason() -> None:
    batch = batch_of(
        slot_with(3, (0.0, 1.0, 0.0, 1.0), (1.0, 1.0, 1.0, 1.0)),
        slot_with(4, (None, None, None, 1.0), (0.0, 0.0, 0.0, 1.0)),
    )
    training = training_set(batch, normalize="none", judged_on="correct")
    assert [(sample.slot, sample.group, sample.sample) for sample in training.samples] == [
        *[(3, 0, sample) for sample in range(4)],
        *[(4, 1, sample) for sample in range(4)],
    ]
    assert [float(sample.advantages[0]) for sample in training.samples] == [
        -0.5,
        0.5,
        -0.5,
        0.5,
        -0.25,
        -0.25,
        -0.25,
        0.75,
    ]
    assert training.trained_groups == {3: (0,), 4: (1,)}
    assert training.dropped_groups == {"no_signal": 1, "ungradable": 1}


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf")])
def test_a_rollout_without_a_number_for_a_reward_makes_no_sample_and_moves_no_mean(missing: float | None) -> None:
    batch = batch_of(slot_with(0, (0.0, 1.0, missing, 1.0), (0.0, 1.0, 0.0, 1.0)))
    training = training_set(batch, normalize="none", judged_on="correct")
    first = [sample for sample in training.samples if sample.group == 0]
    assert [sample.sample for sample in first] == [0, 1, 3]
    assert [float(sample.advantages[0]) for sample in first] == pytest.approx([-2 / 3, 1 / 3, 1 / 3])


def test_a_sample_is_its_rollouts_prompt_and_completion_with_the_samplers_logprobs() -> None:
    groups = slot_with(7, (0.0, 1.0, 0.0, 1.0), (0.0, 1.0, 0.0, 1.0))
    (first, *_) = training_set(batch_of(groups), normalize="std", judged_on="total").samples
    rollout = groups[0].rollouts[0]
    assert first.tokens.tolist() == [*rollout.prompt_tokens.tolist(), *rollout.completion_tokens.tolist()]
    assert first.num_prompt_tokens == len(rollout.prompt_tokens)
    assert np.array_equal(first.behaviour_logprobs, rollout.logprobs)
    assert first.loss_mask.all()
    assert first.advantages == pytest.approx(-0.5 / (np.std([0, 1, 0, 1], ddof=1) + 1e-4))


def test_signal_is_judged_on_the_unshaped_reward_unless_told_otherwise() -> None:
    """Case L17: all correct, told apart by a length penalty alone."""
    shaped = (1.0, 0.9, 0.8, 0.7)
    batch = batch_of(slot_with(0, shaped, shaped, correct=(1.0, 1.0, 1.0, 1.0)))
    assert training_set(batch, normalize="none", judged_on="correct").dropped_groups == {"no_signal": 2}
    assert not training_set(batch, normalize="none", judged_on="total").dropped_groups


def test_batch_items_name_every_slot_with_the_groups_that_carried_a_gradient() -> None:
    batch = batch_of(
        slot_with(3, (0.0, 1.0, 0.0, 1.0), (1.0, 1.0, 1.0, 1.0)), slot_with(5, (0.0,) * 4, (0.0,) * 4), version=2
    )
    training = training_set(batch, normalize="none", judged_on="correct")
    submissions = {slot: submission(slot) for slot in (3, 4, 5)}
    first, second = batch_items(batch, training, submissions)
    assert (first.slot, first.groups_trained, second.slot, second.groups_trained) == (3, (0,), 5, ())
    assert first.submission_digest == submissions[3].digest()
    assert second.file_digest == submissions[5].file_digest
    assert (first.policy_version, second.policy_version) == (0, 0)


def test_figures_take_every_graded_rollout() -> None:
    groups = slot_with(0, (0.0, None, 2.0, 3.0), (1.0, 1.0, 1.0, 1.0), correct=(1.0, None, 0.0, None))
    assert group_rewards(groups) == ([0.0, 2.0, 3.0, 1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0])
