import math
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from pydantic import ValidationError

from farflung.config.base import Config
from farflung.errors import UserError
from farflung.rl.aggregate import Aggregation
from farflung.rl.batch import count_loss_tokens
from farflung.rl.entropy import EntropyParams
from farflung.rl.grpo import GrpoParams, grpo_loss
from farflung.rl.kl import KlParams
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.metrics import LOSS, NUM_TOKENS
from farflung.rl.objectives import OBJECTIVES, Objective
from farflung.rl.packing import split_micro_batches
from farflung.rl.samples import training_samples
from farflung.trainer.config import ObjectiveConfig, ShapingConfig
from farflung.trainer.objective import make_objective
from farflung.trainer.setup import set_up
from farflung.trainer.step import StepParams, train_step
from tiny_pool import batch_of, pool_spec, reserved, sampled_groups, tiny_policy, trainer_config


def made(**settings: Any) -> Objective:
    return make_objective(ObjectiveConfig(**settings), max_length_tokens=7)


def complaint(**settings: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        ObjectiveConfig(**settings)
    return str(caught.value)


def step_params(objective: Objective, micro_batch_tokens: int = 4096) -> StepParams:
    return StepParams(
        objective=objective,
        temperature=1.0,
        reserved_token_ids=reserved(),
        micro_batch_tokens=micro_batch_tokens,
        max_grad_norm=1e9,
    )


def field_names(name: str) -> set[str]:
    return {field.name for field in fields(OBJECTIVES[name][0])}  # type: ignore[arg-type]


def some_inputs() -> LossInputs:
    pi_N = torch.tensor([-0.5, -1.0], requires_grad=True)
    return LossInputs(
        trainer_logprobs_N=pi_N,
        behaviour_logprobs_N=pi_N.detach(),
        advantages_N=torch.tensor([1.0, -1.0]),
        loss_mask_N=torch.tensor([True, True]),
    )


# -- custom objectives of this test -------------------------------------------------------------------------------

not_a_function = 3


def scaled_logprobs(inputs: LossInputs, params: Mapping[str, float], num_loss_tokens: int) -> LossOutputs:
    loss = params["scale"] * inputs.trainer_logprobs_N.sum() / num_loss_tokens
    return LossOutputs(loss=loss, metrics={NUM_TOKENS: inputs.loss_mask_N.sum(), LOSS: loss.detach()})


def forgetful(inputs: LossInputs, params: Mapping[str, float], num_loss_tokens: int) -> float:
    return 0.0


def bare(inputs: LossInputs, params: Mapping[str, float], num_loss_tokens: int) -> LossOutputs:
    """With a metric that carries a gradient, as one is written without thinking."""
    loss = -torch.where(inputs.loss_mask_N, inputs.trainer_logprobs_N, 0.0).sum() / num_loss_tokens
    return LossOutputs(loss=loss, metrics={"sum/mine": loss})


def raising(inputs: LossInputs, params: Mapping[str, float], num_loss_tokens: int) -> LossOutputs:
    raise KeyError("beta")


def per_token(inputs: LossInputs, params: Mapping[str, float], num_loss_tokens: int) -> LossOutputs:
    return LossOutputs(loss=inputs.trainer_logprobs_N, metrics={})


def plain_number(inputs: LossInputs, params: Mapping[str, float], num_loss_tokens: int) -> LossOutputs:
    return LossOutputs(loss=0.5, metrics={})  # type: ignore[arg-type]


def detached(inputs: LossInputs, params: Mapping[str, float], num_loss_tokens: int) -> LossOutputs:
    return LossOutputs(loss=inputs.trainer_logprobs_N.sum().detach(), metrics={})


def misnamed(inputs: LossInputs, params: Mapping[str, float], num_loss_tokens: int) -> LossOutputs:
    return LossOutputs(loss=inputs.trainer_logprobs_N.sum(), metrics={"mine": inputs.advantages_N.sum()})


def many_valued(inputs: LossInputs, params: Mapping[str, float], num_loss_tokens: int) -> LossOutputs:
    return LossOutputs(loss=inputs.trainer_logprobs_N.sum(), metrics={"sum/mine": inputs.advantages_N})


# -- choice -------------------------------------------------------------------------------------------------------


def test_the_default_is_grpo_with_its_own_settings() -> None:
    assert made() == Objective(function=grpo_loss, params=GrpoParams(max_length_tokens=7))
    chosen = made(clip_low=0.1, clip_high=0.3, delta=5.0, weight_low=0.4, weight_high=3.0, weight_mode="clip")
    assert chosen.params == GrpoParams(
        clip_low=0.1,
        clip_high=0.3,
        delta=5.0,
        weight_low=0.4,
        weight_high=3.0,
        weight_mode="clip",
        max_length_tokens=7,
    )
    assert made(anchor="behaviour", params={"aggregation": "sequence_mean"}).params == GrpoParams(
        anchor="behaviour", aggregation="sequence_mean", max_length_tokens=7
    )


def test_parameters_guard_and_bonus_reach_the_objective() -> None:
    chosen = made(
        name="ppo",
        params={"clip_high": 0.3, "anchor": "decoupled"},
        guard={"mode": "band", "level": "token", "judged_at": "geometric", "low": 0.9, "high": 1.1},
        entropy={"coefficient": 0.01, "form": "exact"},
        kl={"coefficient": 0.02, "estimator": "k3"},
    )
    assert (chosen.params.clip_high, chosen.anchor) == (0.3, "decoupled")
    assert (chosen.guard.mode, chosen.guard.judged_at, chosen.guard.low, chosen.guard.high) == (
        "band",
        "geometric",
        0.9,
        1.1,
    )
    assert chosen.entropy == EntropyParams(coefficient=0.01, form="exact")
    assert chosen.kl == KlParams(coefficient=0.02, estimator="k3")


def test_dr_grpo_divides_by_the_pool_s_longest_completion() -> None:
    assert made(name="dr_grpo").params.max_length_tokens == 7
    assert made(name="dr_grpo", params={"max_length_tokens": 5}).params.max_length_tokens == 5


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_makes_a_step_that_does_not_depend_on_its_cut(name: str) -> None:
    """Cases L3 and L14, with a model: sequences and groups of a step are spread over micro-batches."""
    groups = [group for slot in range(2) for group in sampled_groups(tiny_policy(), pool_spec(), slot=slot)]
    samples = training_samples(groups)
    weights = []
    assert len(split_micro_batches(samples, 12)) > 2
    for cut in (4096, 12):
        policy = tiny_policy()
        result = train_step(policy, samples, step_params(made(name=name), cut), lr=1e-2)
        assert result.is_applied
        assert result.num_loss_tokens == count_loss_tokens(samples)
        weights.append(torch.cat([value.flatten() for value in policy.masters_state().values()]))
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=2e-6)


# -- every documented value makes a step --------------------------------------------------------------------------


def documented(section: type[Config], prefix: str = "") -> list[tuple[str, str]]:
    """(dotted key, value) of every setting with a list of valid values."""
    found: list[tuple[str, str]] = []
    for key, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Config):
            found += documented(kind, f"{prefix}{key}.")
        found += [(prefix + key, value) for each in (kind, *get_args(kind)) for value in get_args(each) if value]
    return [(key, value) for key, value in found if isinstance(value, str)]


NEEDED: dict[str, dict[str, Any]] = {
    "kl.placement": {"kl.coefficient": 0.1},
    "kl.estimator": {"kl.coefficient": 0.1},
    "entropy.form": {"entropy.coefficient": 0.1},
    "guard.level": {"guard.mode": "mask"},
    "guard.judged_at": {"guard.mode": "mask"},
}
"""What has to be on for a setting to have an effect."""
OTHER: dict[tuple[str, str], dict[str, Any]] = {
    ("guard.mode", "truncate"): {"name": "ppo", "params": {"anchor": "decoupled"}},
    ("kl.estimator", "k1"): {"kl.coefficient": 0.1, "kl.placement": "reward"},
}
"""Where a value has its place."""


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for key, value in flat.items():
        section, _, name = key.rpartition(".")
        (settings.setdefault(section, {}) if section else settings)[name] = value
    return settings


def test_the_list_of_documented_values_is_not_empty() -> None:
    keys = {key for key, _ in documented(ObjectiveConfig)}
    assert keys == {*NEEDED, "guard.mode", "anchor", "weight_mode", "normalize", "signal"}
    assert {key for key, _ in documented(ShapingConfig)} == {"length"}


@pytest.mark.parametrize(("key", "value"), documented(ObjectiveConfig))
def test_every_documented_value_makes_a_step(key: str, value: str, tmp_path: Path) -> None:
    """Case L14, through learner and model, off-policy enough for bounds to matter."""
    settings = nested({**OTHER.get((key, value), NEEDED.get(key, {})), key: value})
    setup = set_up(trainer_config(objective=settings), pool_spec(), 0, None, tmp_path)
    step = setup.learner.learn(batch_of(sampled_groups(tiny_policy(seed=1), pool_spec())))
    assert step.is_applied
    assert step.metrics["grad_norm"] > 0
    assert all(math.isfinite(number) for number in step.metrics.values())


@pytest.mark.parametrize(("key", "value"), documented(ShapingConfig))
def test_every_documented_length_reward_makes_a_step(key: str, value: str) -> None:
    """Case L14."""
    learner = set_up(trainer_config(shaping={key: value}), pool_spec(), 0, None).learner
    groups = sampled_groups(tiny_policy(), pool_spec())
    aimed = [
        replace(group, rollouts=tuple(replace(rollout, target_length=4) for rollout in group.rollouts))
        for group in groups
    ]
    step = learner.learn(batch_of(aimed))
    assert step.is_applied
    assert ("reward/shaped_mean" in step.metrics) == (value != "none")
    lengths = [len(rollout.completion_tokens) for group in aimed for rollout in group.rollouts]
    assert min(lengths) < 4
    error = sum(abs(length - 4) for length in lengths) / len(lengths)
    assert step.metrics.get("length/error_mean") == (None if value == "none" else pytest.approx(error))


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if "aggregation" in field_names(name)])
@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_every_aggregation_makes_a_step_with_every_objective_that_has_it(name: str, aggregation: str) -> None:
    """Case L14."""
    policy = tiny_policy()
    samples = training_samples(sampled_groups(policy, pool_spec()))
    objective = made(name=name, params={"aggregation": aggregation})
    assert train_step(policy, samples, step_params(objective), lr=1e-3).is_applied


GUARDS: dict[str, dict[str, Any]] = {
    "TIS": {"mode": "truncate"},
    "IcePop": {"mode": "band", "low": 0.5, "high": 5.0},
    "sequence mask": {"mode": "mask", "level": "sequence", "high": 3.0},
    "seq-mask-TIS": {"mode": "band", "level": "token", "judged_at": "geometric", "low": 0.5, "high": 5.0},
    "geometric mask": {"mode": "band", "level": "geometric", "low": 0.99, "high": 1.01},
    "K3 rejection": {"mode": "mask", "judged_at": "k3", "high": 0.01},
    "OPSM": {"mode": "band", "level": "geometric", "low": 0.9, "high": 1e9, "only_negative": True},
}
"""Those of docs/objectives.md."""


@pytest.mark.parametrize("guard", GUARDS)
def test_every_guard_of_the_field_makes_a_step(guard: str) -> None:
    """Case L14; beside grpo, which weighs already, those that drop."""
    samples = training_samples(sampled_groups(tiny_policy(seed=1), pool_spec()))
    for base in ({"name": "ppo", "params": {"anchor": "decoupled"}}, {}):
        if not base and GUARDS[guard]["mode"] == "truncate":
            continue
        policy = tiny_policy()
        result = train_step(policy, samples, step_params(made(**base, guard=GUARDS[guard])), lr=1e-3)
        assert result.is_applied
        assert result.metrics["guard/raw_max"] > result.metrics["guard/raw_min"] >= 0
        if guard in ("geometric mask", "K3 rejection"):
            assert 0 < result.metrics["guard/is_masked"] <= 1


def test_beside_grpo_a_guard_drops_and_its_weight_is_not_counted_twice() -> None:
    chosen = made(guard={"mode": "mask", "high": 1.5})
    log_weight = torch.tensor([0.3, 1.0], dtype=torch.float64)
    outputs = chosen(
        LossInputs(
            trainer_logprobs_N=log_weight.clone().requires_grad_(),
            behaviour_logprobs_N=torch.zeros(2, dtype=torch.float64),
            advantages_N=torch.ones(2, dtype=torch.float64),
            loss_mask_N=torch.tensor([True, True]),
        ),
        2,
    )
    assert outputs.loss.item() == pytest.approx(-math.exp(0.3) / 2)


# -- custom -------------------------------------------------------------------------------------------------------


@pytest.fixture
def custom_module(monkeypatch: pytest.MonkeyPatch) -> str:
    import sys

    monkeypatch.setitem(sys.modules, "custom_objectives", sys.modules[__name__])
    return "custom_objectives"


def test_a_custom_objective_is_called_by_import_path(custom_module: str) -> None:
    chosen = made(name=f"{custom_module}:scaled_logprobs", params={"scale": 2.0})
    assert chosen(some_inputs(), 2).loss.item() == pytest.approx(-1.5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_package.module:loss", "cannot be imported .*write package.module:function"),
        ("math:no_such_function", "cannot be imported"),
        ("custom_objectives:not_a_function", "is no function but int"),
    ],
)
def test_a_custom_objective_that_is_none_is_refused_at_start(custom_module: str, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        made(name=name)


def test_a_custom_objective_that_returns_something_else_is_named(custom_module: str) -> None:
    with pytest.raises(UserError, match="custom_objectives:forgetful returned float"):
        made(name=f"{custom_module}:forgetful")(some_inputs(), 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raising", "custom_objectives:raising raised KeyError: 'beta'"),
        ("per_token", r"returned a loss of shape \[2\]: it must be a scalar"),
        ("plain_number", "returned a loss of type float"),
        ("detached", "a loss without a gradient: make it of inputs.trainer_logprobs_N"),
        ("misnamed", "the metric 'mine': its name must begin with sum/, max/ or min/"),
        ("many_valued", "a metric sum/mine that is no scalar"),
    ],
)
def test_what_is_wrong_with_a_custom_objective_is_said_with_its_name(
    custom_module: str, name: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        made(name=f"{custom_module}:{name}")(some_inputs(), 2)


def test_a_custom_objective_need_not_count_tokens_or_report_its_loss(custom_module: str) -> None:
    outputs = made(name=f"{custom_module}:bare")(some_inputs(), 2)
    assert outputs.metrics[NUM_TOKENS].item() == 2
    assert outputs.metrics[LOSS].item() == pytest.approx(0.75)
    assert not any(value.requires_grad for value in outputs.metrics.values())


# -- refusals when the settings are read --------------------------------------------------------------------------


def test_unknown_names_fail_with_the_list() -> None:
    """Case L14."""
    assert "objective is 'trpo': it must be one of grpo, dr_grpo, dapo, ppo, gspo, cispo" in complaint(name="trpo")
    assert "has no parameter 'tau': it has clip_low, clip_high" in complaint(name="gspo", params={"tau": 1.0})
    assert "written package.module:function" in complaint(name="some:thing:else")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "ppo", "params": {"clip_low": 2.0}}, "clip_low is 2.0: it must be above 0 and below 1"),
        ({"name": "gspo", "clip_low": 0.1}, "set trainer.objective.params.clip_low if gspo has it"),
        ({"params": {"clip_low": 0.1}}, "set trainer.objective.clip_low"),
        ({"guard": {"mode": "truncate"}}, "bounds its weights already"),
        ({"kl": {"coefficient": 0.1, "estimator": "k1"}}, "'k1' in the loss, where its expected gradient is 0"),
        (
            {"kl": {"coefficient": 0.1, "placement": "reward", "estimator": "k3+"}},
            "carries no gradient: it must be one of k1, k2, k3",
        ),
        ({"entropy": {"target": 0.2, "change": 2.0}}, "neither may exceed it"),
        ({"kl": {"estimator": "k5"}}, "'k1', 'k2', 'k3', 'k3+' or 'k3_unbiased'"),
        ({"entropy": {"form": "soft"}}, "'exact' or 'sampled'"),
        ({"guard": {"judged_at": "word"}}, "'token', 'sequence', 'geometric' or 'k3'"),
        ({"name": "ppo", "guard": {"mode": "truncate"}}, "a weight would count it twice"),
        (
            {"name": "ppo", "params": {"anchor": "decoupled"}, "guard": {"mode": "truncate", "judged_at": "geometric"}},
            "judged at its own level",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused_when_they_are_read(settings: dict[str, Any], message: str) -> None:
    assert message in complaint(**settings)
