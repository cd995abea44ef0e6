"""A model that transformers runs, trained like any other: samples from our engine, steps, checkpoints."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from farflung.engine.base import Completion, GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.errors import UserError
from farflung.model.folder import LoadedModel, load_folder
from farflung.model.weights import expected_shapes
from farflung.rl.batch import FlatBatch, flatten
from farflung.rl.types import TrainingSample
from farflung.trainer.config import LoraConfig, OptimizerConfig
from farflung.trainer.forward import batch_logprobs
from farflung.trainer.make_policy import make_policy
from farflung.trainer.policy import Policy
from farflung.trainer.policy_base import CPU_FLOAT32

pytest.importorskip("transformers")

from foreign_models import VOCABULARY, library_model, save

FAMILIES = ("gpt2", "phi", "qwen3_moe", "glm4_moe")
"""Learned positions, a bias of the head, experts in stacks, a tensor that is no parameter."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadedModel]:
    folder = tmp_path_factory.mktemp("models")
    return {name: load_folder(save(library_model(name), Path(folder, name))) for name in FAMILIES}


def _policy(model: LoadedModel, name: str = "adamw") -> Policy:
    return Policy(model.config, model.state, OptimizerConfig(name=name))


def _sampled(policy: Policy, model: LoadedModel) -> tuple[list[GroupRequest], list[Completion]]:
    engine = TorchEngine(model.config, max_batch_rows=8)
    engine.load_weights(policy.published_state(), 0)
    rng = np.random.default_rng(0)
    requests = [
        GroupRequest(group=i, prompt_tokens=rng.integers(3, VOCABULARY, 4 + i).astype(np.int32), num_samples=3)
        for i in range(2)
    ]
    return requests, engine.generate(requests, SamplingParams(max_completion_tokens=9, eos_token_ids=(1,)), bytes(32))


def _batch(requests: Sequence[GroupRequest], completions: Sequence[Completion]) -> FlatBatch:
    """Rollouts of one group share their prompt."""
    return flatten([_sample(requests[each.group], each) for each in completions])


def _sample(request: GroupRequest, completion: Completion) -> TrainingSample:
    count = len(completion.tokens)
    return TrainingSample(
        tokens=np.concatenate((request.prompt_tokens, completion.tokens)).astype(np.int32),
        num_prompt_tokens=len(request.prompt_tokens),
        behaviour_logprobs=completion.logprobs,
        advantages=np.ones(count, dtype=np.float32),
        loss_mask=np.ones(count, dtype=np.bool_),
        policy_version=0,
        slot=0,
        group=completion.group,
        sample=completion.sample,
    )


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_ratio_to_the_sampler_is_one_before_the_first_step(family: str, models: dict[str, LoadedModel]) -> None:
    policy = _policy(models[family])
    requests, completions = _sampled(policy, models[family])
    with torch.no_grad():
        logprobs, _ = batch_logprobs(policy.published, _batch(requests, completions))
    expected = torch.from_numpy(np.concatenate([completion.logprobs for completion in completions]))
    torch.testing.assert_close(logprobs, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("family", FAMILIES)
def test_steps_make_what_was_sampled_likelier_and_can_be_taken_again(
    family: str, name: str, models: dict[str, LoadedModel]
) -> None:
    policy = _policy(models[family], name)
    batch = _batch(*_sampled(policy, models[family]))

    def step(each: Policy) -> float:
        logprobs, _ = batch_logprobs(each.published, batch)
        (-logprobs.mean()).backward()
        assert each.apply_gradient(3e-3, 1.0) is not None
        return float(logprobs.detach().mean())

    before = [step(policy) for _ in range(3)]
    assert before[-1] > before[0] + 0.01
    masters, moments = policy.masters_state(), policy.optimizer_state()
    other = _policy(models[family], name)
    other.restore(masters, moments)
    assert step(other) == step(policy)
    assert _same(other.masters_state(), policy.masters_state())
    assert not _same(policy.masters_state(), masters)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_that_learns_has_an_optimizer_and_is_published(
    family: str, models: dict[str, LoadedModel]
) -> None:
    policy = _policy(models[family])
    grouped = [each for one in policy._optimizers for group in one.param_groups for each in group["params"]]
    assert len(grouped) == len(set(grouped)) == len(list(policy.masters.parameters()))
    state = policy.published_state()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == expected_shapes(models[family].config)
    assert {tensor.dtype for tensor in state.values()} == {torch.bfloat16}


def test_adapters_are_said_to_be_those_of_the_own_decoder(models: dict[str, LoadedModel]) -> None:
    model = models["phi"]
    with pytest.raises(UserError, match="run by transformers"):
        make_policy(model.config, model.state, LoraConfig(rank=4), OptimizerConfig(), CPU_FLOAT32, seed=0)
