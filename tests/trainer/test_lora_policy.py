"""Training an adapter: what is computed with, what moves, what is kept, what the reference costs."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from farflung.engine.torch_engine import TorchEngine
from farflung.errors import OurFault, UserError
from farflung.model.adapter_files import load_adapter_folder
from farflung.model.decoder import Decoder
from farflung.model.factory import random_state
from farflung.model.lora import A, B, merge
from farflung.model.weights import publishable_state, state_to_hf
from farflung.rl.batch import flatten
from farflung.rl.samples import training_samples
from farflung.rl.types import TrainingSample
from farflung.trainer.lora_policy import LoraPolicy, Publish
from farflung.trainer.lora_reference import LoraReference
from farflung.trainer.step import completion_logprobs, train_step
from tiny_pool import (
    LORA,
    SEED,
    description,
    pool_spec,
    reserved,
    sampled_groups,
    step_params,
    tiny_lora_policy,
    tiny_policy,
    trainer_config,
)

SPEC = LORA
BOTH = pytest.mark.parametrize("publish", ["merged", "adapter"])


def base() -> dict[str, Tensor]:
    return random_state(description().config, SEED, trainer_config().model.init_std)


def samples() -> list[TrainingSample]:
    return list(training_samples(sampled_groups(tiny_policy(), pool_spec())))


def step(policy: LoraPolicy, lr: float = 1e-2) -> None:
    assert train_step(policy, samples(), step_params(), lr).is_applied


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def logprobs(policy: LoraPolicy) -> Tensor:
    with torch.no_grad():
        return completion_logprobs(policy, flatten(samples()), step_params())[0]


@BOTH
def test_a_step_moves_the_adapter_alone(publish: Publish) -> None:
    policy = tiny_lora_policy(publish)
    before, base_before = policy.masters_state(), {name: t.clone() for name, t in policy.base_state().items()}
    step(policy)
    step(policy)  # A has no gradient while B is zero
    assert all(not torch.equal(before[name], after) for name, after in policy.masters_state().items())
    assert same(policy.base_state(), base_before)
    assert same(base_before, publishable_state(base()))
    assert all(parameter.grad is None for parameter in policy.published.parameters())


@BOTH
def test_the_order_in_which_a_file_holds_the_adapter_changes_nothing(publish: Publish) -> None:
    """The norm of a gradient is a sum over its parts: a checkpoint's order is not that of a first start."""
    policy = tiny_lora_policy(publish)
    state = dict(reversed(policy.masters_state().items()))
    other = LoraPolicy(policy.config, base(), state, SPEC, publish, trainer_config().optimizer)
    assert list(other.master_parameters()) == list(policy.master_parameters())


@BOTH
def test_the_optimizer_keeps_moments_of_the_adapter_alone(publish: Publish) -> None:
    policy = tiny_lora_policy(publish)
    step(policy)
    moments = {key: value for key, value in policy.optimizer_state().items() if value.ndim}
    assert {key.split("/")[1] for key in moments} == set(policy.masters_state())
    num_moments = sum(value.numel() for value in moments.values())
    assert num_moments == 2 * sum(value.numel() for value in policy.masters_state().values())


@BOTH
def test_the_trainer_computes_with_what_samplers_have(publish: Publish) -> None:
    """The ratio to the sampler is 1 at staleness 0, also where the masters hold more than bf16 does."""
    policy = tiny_lora_policy(publish)
    step(policy)
    step(policy)
    engine = TorchEngine(description().config, max_batch_rows=8)
    policy.load_into(engine, 3)
    assert engine.policy_version == 3
    theirs = engine._decoder
    assert isinstance(theirs, Decoder)
    batch = flatten(samples())
    with torch.no_grad():
        ours = completion_logprobs(policy, batch, step_params())[0]
        policy.published = theirs
        torch.testing.assert_close(completion_logprobs(policy, batch, step_params())[0], ours, rtol=0, atol=2e-6)


def test_merged_the_passes_run_on_the_rounded_sum() -> None:
    policy = tiny_lora_policy("merged")
    step(policy)
    masters = policy.masters_state()
    expected = merge(publishable_state(base()), masters, SPEC, dtype=torch.bfloat16)
    assert same(policy.published_state(), expected)
    assert same(state_to_hf(policy.published), {name: tensor.float() for name, tensor in expected.items()})


def test_the_gradient_is_that_of_the_whole_weights_seen_through_the_factors() -> None:
    """Of the merged policy against training all weights from the same point."""
    policy = tiny_lora_policy("merged")
    step(policy)
    masters = policy.masters_state()
    whole = tiny_policy()
    whole.restore({name: tensor.float() for name, tensor in policy.published_state().items()}, {})
    for each in (policy, whole):
        batch = flatten(samples())
        logprobs_M, _ = completion_logprobs(each, batch, step_params())
        logprobs_M.sin().sum().backward()
        each._gather_gradient()
    with torch.no_grad():
        for parameter in whole.masters.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    of_weights = state_to_hf(whole.masters)
    for name, parameter in policy.master_parameters().items():
        module = name.removesuffix(A).removesuffix(B)
        weight = of_weights[f"{module}.weight"]
        a, b = masters[module + A], masters[module + B]
        expected = SPEC.scale * (b.T @ weight if name.endswith(A) else weight @ a.T)
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-5)


@BOTH
def test_a_policy_that_goes_on_from_a_checkpoint_makes_the_same_weights(publish: Publish) -> None:
    unbroken = tiny_lora_policy(publish)
    step(unbroken)
    masters = unbroken.masters_state()
    optimizer = {name: value.clone() for name, value in unbroken.optimizer_state().items()}
    resumed = tiny_lora_policy(publish)
    resumed.restore(masters, optimizer)
    for policy in (unbroken, resumed):
        step(policy)
    assert same(unbroken.masters_state(), resumed.masters_state())
    assert same(unbroken.published_state(), resumed.published_state())
    assert unbroken.weights_file().data == resumed.weights_file().data
    assert unbroken.base_file() == resumed.base_file()


@BOTH
def test_a_gradient_that_is_not_finite_changes_nothing(publish: Publish) -> None:
    policy = tiny_lora_policy(publish)
    step(policy)
    masters, published = policy.masters_state(), policy.published_state()
    next(iter(policy.master_parameters().values())).grad = torch.full((4, description().config.hidden_size), torch.nan)
    assert policy.apply_gradient(1e-2, 1.0) is None
    assert same(policy.masters_state(), masters)
    assert same(policy.published_state(), published)
    assert policy.is_finite()


@BOTH
def test_weights_that_are_not_finite_are_seen(publish: Publish) -> None:
    policy = tiny_lora_policy(publish)
    with torch.no_grad():
        policy.master_parameters()["model.layers.0.mlp.up_proj" + B].fill_(torch.finfo(torch.float32).max)
    policy.round_masters()
    assert not policy.is_finite()


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_every_optimizer_learns(name: str) -> None:
    policy = tiny_lora_policy(name=name)
    before = policy.masters_state()
    step(policy)
    assert not same(before, policy.masters_state())


def test_an_adapter_is_published_without_the_base_and_a_merged_version_whole() -> None:
    apart, merged = tiny_lora_policy("adapter"), tiny_lora_policy("merged")
    step(apart)
    assert set(apart.weights_file().state) == set(apart.masters_state())
    assert apart.config_files.keys() == {"adapter_config.json"}
    assert (merged.base_file(), merged.config_files) == (None, {})
    assert set(merged.weights_file().state) == set(base())
    before = tiny_lora_policy("adapter")
    assert apart.base_file() == before.base_file()
    assert apart.weights_file(before.masters_state()).data == before.weights_file().data


@BOTH
def test_the_reference_is_version_0_without_a_second_copy_of_the_weights(publish: Publish, tmp_path: Path) -> None:
    policy = tiny_lora_policy(publish)
    step(policy)  # a warm start: version 0 is not the base alone
    reference, at_begin = LoraReference(policy, tmp_path / "reference"), logprobs(policy)
    assert reference.snapshot() == {}
    reference.begin(0)
    num_tensors = sum(1 for _ in policy.published.parameters())
    step(policy)
    step(policy)
    now = logprobs(policy)
    assert not torch.allclose(now, at_begin, atol=1e-4)
    annotated = reference.annotate(samples(), step_params())
    theirs = torch.cat([torch.from_numpy(sample.ref_logprobs) for sample in annotated])  # type: ignore[arg-type]
    torch.testing.assert_close(theirs, at_begin, rtol=0, atol=1e-6)
    assert torch.equal(logprobs(policy), now)
    assert sum(1 for _ in policy.published.parameters()) == num_tensors

    again = LoraReference(policy, tmp_path / "reference")
    again.restore(reference.snapshot())
    assert again.snapshot() == reference.snapshot()
    assert torch.equal(
        torch.from_numpy(again.annotate(samples(), step_params())[0].ref_logprobs),  # type: ignore[arg-type]
        torch.from_numpy(annotated[0].ref_logprobs),  # type: ignore[arg-type]
    )


def test_a_reference_that_is_another_or_gone_is_refused(tmp_path: Path) -> None:
    policy = tiny_lora_policy()
    reference = LoraReference(policy, tmp_path / "reference")
    with pytest.raises(UserError, match="it has made 2 optimizer steps without one"):
        reference.begin(2)
    reference.begin(0)
    with pytest.raises(UserError, match="is not that of the reference"):
        LoraReference(policy, tmp_path / "reference").restore({"sha256": "0" * 64})
    with pytest.raises(OurFault, match="is gone"):
        LoraReference(policy, tmp_path / "elsewhere").restore(reference.snapshot())
    assert load_adapter_folder(tmp_path / "reference", description().config).spec == SPEC


def test_the_reserved_ids_stay_reserved() -> None:
    """The mask of the head does not depend on what is trained."""
    assert reserved()
    assert bool(torch.isfinite(logprobs(tiny_lora_policy())).all())
