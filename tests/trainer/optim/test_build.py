from typing import Any

import pytest
import torch

from farflung.trainer.optim.muon import Muon
from farflung.trainer.policy import Policy
from tiny_pool import tiny_policy


def policy_with(**optimizer: Any) -> Policy:
    policy = tiny_policy(optimizer=optimizer)
    for parameter in policy.published.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return policy


def decayed(policy: Policy) -> set[str]:
    """Weights that a step with gradients of zero makes smaller by lr * decay."""
    before = policy.masters_state()
    policy.apply_gradient(lr=0.5, max_grad_norm=1.0)
    after = policy.masters_state()
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    for name in moved:
        torch.testing.assert_close(after[name], before[name] * 0.95, rtol=1e-6, atol=0)
    return {name.removeprefix("model.layers.0.") for name in moved}


HIDDEN = {
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
}
EMBEDDINGS = {"model.embed_tokens.weight", "lm_head.weight"}


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_decay_reaches_matrices_alone_and_embeddings_unless_switched_off(name: str) -> None:
    assert decayed(policy_with(name=name, weight_decay=0.1)) == HIDDEN | EMBEDDINGS
    assert decayed(policy_with(name=name, weight_decay=0.1, decay_embeddings=False)) == HIDDEN
    assert decayed(policy_with(name=name, weight_decay=0.0)) == set()


def test_muon_has_the_matrices_of_the_layers_and_adamw_the_rest() -> None:
    policy = policy_with(name="muon")
    policy.apply_gradient(lr=1e-3, max_grad_norm=1.0)
    kinds = {key.split("/")[1]: key.split("/")[0] for key in policy.optimizer_state()}
    assert {name for name, kind in kinds.items() if kind == "momentum"} == {
        f"layers.0.{name}_proj.weight" for name in ("qkv", "o", "gate", "up", "down")
    }
    assert set(kinds) == {name for name, _ in policy.masters.named_parameters()}


def test_muon_orthogonalises_queries_keys_and_values_each_on_its_own() -> None:
    policy = policy_with(name="muon")
    layer = policy.published.layers[0]
    gradient = torch.randn(layer.qkv_proj.weight.shape, generator=torch.Generator().manual_seed(0))
    gradient[:16] *= 1000  # the queries': stacked with them, the others would vanish
    layer.qkv_proj.weight.grad = gradient
    before = policy.masters.layers[0].qkv_proj.weight.detach().clone()
    policy.apply_gradient(lr=1e-3, max_grad_norm=1e9)
    update = (before - policy.masters.layers[0].qkv_proj.weight.detach()) / 1e-3
    for part in update.split(16):
        # 0.2 sqrt(16) times an orthogonal matrix
        values = torch.linalg.svdvals(part) / 0.8
        assert 0.5 < values.median() < 1.25


def test_every_parameter_is_in_exactly_one_optimizer() -> None:
    for name in ("adamw", "muon"):
        policy = policy_with(name=name)
        parameters = [
            parameter
            for optimizer in policy._optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        assert len(parameters) == len(set(parameters)) == len(list(policy.masters.parameters()))
        assert any(isinstance(optimizer, Muon) for optimizer in policy._optimizers) == (name == "muon")
