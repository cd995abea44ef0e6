import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint_builder import checkpoint as a_checkpoint
from farflung.errors import OurFault, UserError
from farflung.model.folder import load_folder, save_folder
from farflung.rl.batch import flatten
from farflung.rl.samples import training_samples
from farflung.rl.types import TrainingSample
from farflung.trainer.checkpoint import Checkpoint, Component, Progress
from farflung.trainer.forward import batch_logprobs
from farflung.trainer.learner import Learner
from farflung.trainer.objective import make_objective
from farflung.trainer.policy import Policy
from farflung.trainer.reference import REFERENCE_FOLDER, Reference
from farflung.trainer.scoring import score
from farflung.trainer.setup import set_up
from farflung.trainer.step import StepParams, accumulate, prepare
from tiny_pool import (
    batch_of,
    description,
    pool_spec,
    reserved,
    sampled_groups,
    step_params,
    tiny_policy,
    trainer_config,
)

POOL = pool_spec()
FILES = description().tokenizer.files


def a_reference(policy: Policy, folder: Path) -> Reference:
    return Reference(policy, folder / REFERENCE_FOLDER, FILES, is_given=False)


def samples_of(policy: Policy) -> list[TrainingSample]:
    return training_samples([group for slot in range(2) for group in sampled_groups(policy, POOL, slot=slot)])


def moved_policy() -> Policy:
    """Another policy than `tiny_policy()`."""
    policy = tiny_policy()
    with torch.no_grad():
        for master in policy.masters.parameters():
            master.add_(0.1 * torch.randn(master.shape, generator=torch.Generator().manual_seed(1)))
    policy.round_masters()
    return policy


def with_kl(**kl: Any) -> dict[str, Any]:
    return {"objective": {"kl": {"coefficient": 0.1} | kl}}


def a_learner(folder: Path, **kl: Any) -> Learner:
    policy = tiny_policy()
    return Learner(policy, trainer_config(**with_kl(**kl)), POOL, reserved(), a_reference(policy, folder))


def state_of(policy: Policy) -> Mapping[str, torch.Tensor]:
    return policy.published_state()


# -- what it says -------------------------------------------------------------------------------------------------


def test_a_score_is_the_forward_pass_whatever_its_cut() -> None:
    policy = tiny_policy()
    samples = samples_of(policy)
    with torch.no_grad():
        logprobs_M, entropy_M = batch_logprobs(policy.published, flatten(samples), 0.7, reserved())
    for cut in (12, 4096):
        scores = score(
            policy.published, samples, temperature=0.7, reserved_token_ids=reserved(), micro_batch_tokens=cut
        )
        np.testing.assert_allclose(np.concatenate([each.logprobs for each in scores]), logprobs_M, atol=2e-6)
        np.testing.assert_allclose(np.concatenate([each.entropies for each in scores]), entropy_M, atol=2e-6)


def test_the_reference_of_a_run_is_its_version_0_and_stays_it(tmp_path: Path) -> None:
    policy = tiny_policy()
    reference = a_reference(policy, tmp_path)
    reference.begin(0)
    samples = samples_of(policy)
    before = [sample.ref_logprobs for sample in reference.annotate(samples, step_params())]
    for found, sample in zip(before, samples, strict=True):
        assert found is not None
        np.testing.assert_allclose(found, sample.behaviour_logprobs, atol=1e-5)
    with torch.no_grad():
        policy.masters.norm.weight.mul_(2)
    policy.round_masters()
    reference.begin(7)
    after = [sample.ref_logprobs for sample in reference.annotate(samples, step_params())]
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))


def gradient_of(policy: Policy, samples: list[TrainingSample], objective: dict[str, Any]) -> torch.Tensor:
    config = trainer_config(objective=objective).objective
    params = replace(step_params(), objective=make_objective(config, max_length_tokens=3))
    policy.published.zero_grad(set_to_none=True)
    accumulate(policy, prepare(samples, params), params)
    return torch.cat([parameter.grad.flatten() for parameter in policy.published.parameters()])  # type: ignore[union-attr]


def kl_gradient(policy: Policy, samples: list[TrainingSample], params: StepParams) -> torch.Tensor:
    """Of mean k2, written down apart."""
    policy.published.zero_grad(set_to_none=True)
    batch = flatten(samples)
    assert batch.ref_logprobs_M is not None
    logprobs_M, _ = batch_logprobs(policy.published, batch, params.temperature, params.reserved_token_ids)
    ((logprobs_M - batch.ref_logprobs_M).square() / 2).mean().backward()  # type: ignore[no-untyped-call]
    return torch.cat([parameter.grad.flatten() for parameter in policy.published.parameters()])  # type: ignore[union-attr]


def test_the_kl_term_has_a_gradient_and_it_is_beta_times_that_of_the_kl(tmp_path: Path) -> None:
    """Case L5, through the model."""
    reference = a_reference(tiny_policy(), tmp_path)
    reference.begin(0)
    policy = moved_policy()
    samples = reference.annotate(samples_of(policy), step_params())
    without = gradient_of(policy, samples, {})
    with_term = gradient_of(policy, samples, {"kl": {"coefficient": 0.3}})
    expected = kl_gradient(policy, samples, step_params())
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(with_term - without, 0.3 * expected, rtol=1e-3, atol=1e-6)


def test_in_the_reward_it_changes_advantages_and_has_no_gradient_of_its_own(tmp_path: Path) -> None:
    reference = a_reference(tiny_policy(), tmp_path)
    reference.begin(0)
    policy = moved_policy()
    samples = reference.annotate(samples_of(policy), step_params())
    charged = gradient_of(policy, samples, {"kl": {"coefficient": 0.3, "placement": "reward"}})
    torch.testing.assert_close(charged, gradient_of(policy, samples, {}), rtol=0, atol=0)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_logged_kl_of_the_reward_equals_a_recomputed_one(tmp_path: Path, estimator: str) -> None:
    """Case L9, and what is taken off the rewards is beta times it."""
    learner = a_learner(tmp_path, placement="reward", estimator=estimator)
    learner.learn(batch_of(sampled_groups(tiny_policy(), POOL)))
    groups = sampled_groups(moved_policy(), POOL, slot=1)
    step = learner.learn(batch_of(groups))
    x = [
        np.float64(sample.behaviour_logprobs) - np.float64(sample.ref_logprobs)
        for sample in step.training.samples
        if sample.ref_logprobs is not None
    ]
    values = [{"k1": each, "k2": each**2 / 2, "k3": np.exp(-each) - 1 + each}[estimator] for each in x]
    assert step.metrics["kl"] == pytest.approx(np.concatenate(values).mean(), rel=1e-6)
    assert abs(step.metrics["kl"]) > 1e-3
    first = np.array([sample % 2 - 0.1 * values[sample].sum() for sample in range(4)])
    found = [sample.advantages[0] for sample in step.training.samples[:4]]
    assert found == pytest.approx(first - first.mean(), rel=1e-5)


def test_the_logged_kl_of_the_loss_equals_a_recomputed_one(tmp_path: Path) -> None:
    """Case L9: k3 of the policy that is trained, at its first step."""
    learner = a_learner(tmp_path)
    learner.learn(batch_of(sampled_groups(tiny_policy(), POOL)))
    policy = learner.policy
    with torch.no_grad():
        before, _ = batch_logprobs(
            policy.published, flatten(samples := samples_of(policy)), reserved_token_ids=reserved()
        )
    step = learner.learn(batch_of(*[sampled_groups(policy, POOL, slot=slot) for slot in range(2)]))
    assert [sample.key for sample in step.training.samples] == [sample.key for sample in samples]
    ref = np.concatenate([sample.ref_logprobs for sample in step.training.samples if sample.ref_logprobs is not None])
    x = before.numpy().astype(np.float64) - ref
    assert step.metrics["kl"] == pytest.approx((np.exp(-x) - 1 + x).mean(), rel=1e-3)
    assert step.metrics["kl"] > 0


def test_off_it_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a pass that nobody asked for")

    monkeypatch.setattr("farflung.trainer.lessons.score", never)
    monkeypatch.setattr("farflung.trainer.reference.score", never)
    setup = set_up(trainer_config(), POOL, 0, None)
    assert setup.components == {}
    step = setup.learner.learn(batch_of(sampled_groups(tiny_policy(), POOL)))
    assert step.is_applied
    assert all(sample.ref_logprobs is None for sample in step.training.samples)
    assert "kl" not in step.metrics


# -- where it comes from ------------------------------------------------------------------------------------------


def test_a_run_that_goes_on_has_the_reference_that_it_began_with(tmp_path: Path) -> None:
    config = trainer_config(**with_kl())
    setup = set_up(config, POOL, 0, None, tmp_path)
    learner = setup.learner
    learner.keep(learner.learn(batch_of(sampled_groups(learner.policy, POOL))))
    checkpoint = saved(learner, setup.components)
    again = set_up(config, POOL, 0, checkpoint, tmp_path)
    assert again.components["reference"].snapshot() == setup.components["reference"].snapshot() != {}
    batch = batch_of(sampled_groups(learner.policy, POOL, slot=1))
    one, other = learner.learn(batch), again.learner.learn(batch)
    assert one.metrics == other.metrics
    assert one.metrics["kl"] > 0
    for name, value in load_folder(tmp_path / REFERENCE_FOLDER).state.items():
        assert torch.equal(value, state_of(tiny_policy())[name].to(value.dtype)), name


def saved(learner: Learner, components: Mapping[str, Component]) -> Checkpoint:
    any_checkpoint = a_checkpoint(1)
    progress = Progress(
        pool_digest=POOL.digest(),
        policy_version=1,
        optimizer_step=learner.optimizer_step,
        initial_accuracy=0.0,
        best_accuracy=0.0,
        tokens_trained=learner.tokens_trained,
        dropped_groups={},
        buffer=dict(set_up(trainer_config(), POOL, 0, None).buffer.snapshot()),
        component_state={name: component.snapshot() for name, component in components.items()},
    )
    return replace(
        any_checkpoint,
        progress=Progress.from_bytes(progress.to_bytes()),
        masters=learner.policy.masters_state(),
        optimizer={name: value.clone() for name, value in learner.policy.optimizer_state().items()},
    )


def test_a_run_that_was_killed_before_it_learned_takes_version_0_again(tmp_path: Path) -> None:
    config = trainer_config(**with_kl())
    setup = set_up(config, POOL, 0, None, tmp_path)
    again = set_up(config, POOL, 0, saved(setup.learner, setup.components), tmp_path)
    assert again.components["reference"].snapshot() != {}
    assert (tmp_path / REFERENCE_FOLDER / "model.safetensors").is_file()


def begun(tmp_path: Path) -> tuple[Reference, dict[str, object]]:
    policy = tiny_policy()
    reference = a_reference(policy, tmp_path)
    reference.begin(0)
    return a_reference(policy, tmp_path), reference.snapshot()


def test_a_reference_of_other_weights_is_refused(tmp_path: Path) -> None:
    fresh, snapshot = begun(tmp_path)
    save_folder(tmp_path / REFERENCE_FOLDER, description().config, state_of(moved_policy()), FILES)
    with pytest.raises(UserError, match="are not those of the reference that this run began with"):
        fresh.restore(snapshot)


def test_a_reference_that_is_gone_is_our_fault(tmp_path: Path) -> None:
    fresh, snapshot = begun(tmp_path)
    (tmp_path / REFERENCE_FOLDER).rename(tmp_path / "elsewhere")
    with pytest.raises(OurFault, match="reference is gone"):
        fresh.restore(snapshot)


def test_version_0_cannot_be_taken_when_it_is_gone(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"2 optimizer steps without one; name a folder with .*kl\.reference"):
        a_reference(tiny_policy(), tmp_path).begin(2)


def test_a_folder_can_be_the_reference(tmp_path: Path) -> None:
    save_folder(tmp_path / "given", description().config, state_of(moved_policy()), FILES)
    config = trainer_config(**with_kl(reference=str(tmp_path / "given")))
    step = set_up(config, POOL, 0, None, tmp_path).learner.learn(batch_of(sampled_groups(tiny_policy(), POOL)))
    assert step.metrics["kl"] > 1e-3
    assert not (tmp_path / REFERENCE_FOLDER).exists()


def test_a_folder_with_another_vocabulary_is_refused(tmp_path: Path) -> None:
    other = replace(description().config, vocab_size=description().config.vocab_size + 1)
    state = {
        name: torch.nn.functional.pad(value, (0, 0, 0, 1)) if len(value) == description().config.vocab_size else value
        for name, value in state_of(tiny_policy()).items()
    }
    save_folder(tmp_path / "given", other, state, FILES)
    with pytest.raises(UserError, match="must have the same tokenizer"):
        Reference(tiny_policy(), tmp_path / "given", FILES, is_given=True)


def test_a_coefficient_that_is_steered_is_part_of_a_checkpoint(tmp_path: Path) -> None:
    """KL 0 at version 0 is below the target: 0.1 falls by a fifth of n / horizon, once the step is kept."""
    config = trainer_config(**with_kl(target=0.01, horizon=80))
    setup = set_up(config, POOL, 0, None, tmp_path)
    learner = setup.learner
    step = learner.learn(batch_of(sampled_groups(learner.policy, POOL)))
    assert learner.adaptation.state.kl_coefficient == 0.1
    learner.keep(step)
    assert step.metrics["kl_coefficient"] == 0.1
    assert learner.adaptation.state.kl_coefficient == pytest.approx(0.1 * (1 - 0.2 * 8 / 80))
    again = set_up(config, POOL, 0, saved(learner, setup.components), tmp_path)
    assert again.learner.adaptation.state == learner.adaptation.state
    assert not math.isnan(learner.adaptation.state.entropy or math.nan)
