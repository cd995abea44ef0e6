"""The objective that the settings choose: a built-in one by name, or a custom one by import path.

A custom objective is a function `(inputs, params, num_loss_tokens) -> LossOutputs` (`rl.loss`); its params are the
table `trainer.objective.params` as it stands. Its path is written by whoever runs this trainer, never by another party.
What it raises, or returns that is no loss, is for that person to mend: a `UserError` with the objective's name.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from torch import Tensor

from farflung.errors import FarflungError, UserError
from farflung.rl.entropy import EntropyParams
from farflung.rl.guards import GuardParams
from farflung.rl.kl import KlParams, LossKl, RewardKl, require_reward_estimator
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.metrics import LOSS, NUM_TOKENS
from farflung.rl.objectives import OBJECTIVES, Objective, ObjectiveFunction, make_params
from farflung.rl.shaping import ShapingParams
from farflung.trainer.config import GRPO_KEYS, EntropyConfig, KlConfig, ObjectiveConfig, ShapingConfig


def make_objective(config: ObjectiveConfig, *, max_length_tokens: int) -> Objective:
    """The function to call for each micro-batch.

    Args:
        max_length_tokens: longest completion of the pool, what "constant" aggregation divides by unless told otherwise.

    Raises:
        UserError: unknown name or parameter (with the list), a value out of range, or a custom objective that cannot be
            imported.
    """
    try:
        function, params = _chosen(config, max_length_tokens)
        guard = config.guard
        return Objective(
            function=function,
            params=params,
            guard=GuardParams(
                mode=guard.mode,
                level=guard.level,
                judged_at=guard.judged_at,
                low=guard.low,
                high=guard.high,
                only_negative=guard.only_negative,
            ),
            entropy=_entropy(config.entropy),
            kl=_kl(config.kl),
        )
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"trainer.objective: {error}") from error


def _entropy(config: EntropyConfig) -> EntropyParams | None:
    """With a target there is a bonus, whatever its coefficient is at first."""
    coefficient = config.coefficient or (config.change if config.target else 0.0)
    return EntropyParams(coefficient=coefficient, form=config.form) if coefficient else None


def _kl(config: KlConfig) -> KlParams | None:
    """In the loss; one in the reward is no part of the objective."""
    if not config.coefficient:
        return None
    if config.placement == "reward":
        reward_estimator(config)
        return None
    return KlParams(coefficient=config.coefficient, estimator=cast("LossKl", config.estimator or "k2"))


def reward_estimator(config: KlConfig) -> RewardKl:
    """Raises `ValueError` for an estimator that has no use in the reward."""
    estimator = config.estimator or "k1"
    require_reward_estimator(estimator)
    return cast("RewardKl", estimator)


def make_shaping(config: ShapingConfig, *, max_completion_tokens: int) -> ShapingParams:
    """What is added to rewards.

    Raises:
        UserError: a value out of range.
    """
    try:
        return ShapingParams(
            length=None if config.length == "none" else config.length,
            alpha=config.length_alpha,
            weight=config.length_weight,
            overlong_buffer_tokens=config.overlong_buffer_tokens,
            overlong_factor=config.overlong_factor,
            max_length_tokens=config.overlong_max_tokens or max_completion_tokens,
        )
    except ValueError as error:
        raise UserError(f"trainer.shaping: {error}") from error


def _chosen(config: ObjectiveConfig, max_length_tokens: int) -> tuple[ObjectiveFunction, Any]:
    if ":" in config.name:
        return _imported(config.name), dict(config.params)
    values = dict(config.params)
    if config.name == "grpo":
        values |= {key: getattr(config, key) for key in GRPO_KEYS}
    params = make_params(config.name, values, max_length_tokens=max_length_tokens)
    return OBJECTIVES[config.name][1], params


def _imported(path: str) -> ObjectiveFunction:
    module_name, _, function_name = path.partition(":")
    try:
        function = getattr(import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"trainer.objective.name is {path!r} and cannot be imported ({error}): write package.module:function, and "
            "install the package in this environment"
        ) from error
    if not callable(function):
        raise UserError(f"trainer.objective.name is {path!r}, which is no function but {type(function).__name__}")

    def objective(inputs: LossInputs, params: Any, num_loss_tokens: int) -> LossOutputs:
        try:
            outputs = function(inputs, params, num_loss_tokens)
        except FarflungError:
            raise
        except Exception as error:
            raise UserError(f"objective {path} raised {type(error).__name__}: {error}") from error
        return _completed(path, inputs, outputs)

    return objective


def _completed(path: str, inputs: LossInputs, outputs: object) -> LossOutputs:
    """With the two metrics that every step needs, where the function did not give them.

    Raises:
        UserError: no loss that can be minimised, or metrics that cannot be combined.
    """
    if not isinstance(outputs, LossOutputs):
        raise UserError(f"objective {path} returned {type(outputs).__name__}: it must return rl.loss.LossOutputs")
    loss: object = outputs.loss
    if not isinstance(loss, Tensor) or loss.numel() != 1 or loss.dim():
        shape = f"of shape {list(loss.shape)}" if isinstance(loss, Tensor) else f"of type {type(loss).__name__}"
        raise UserError(f"objective {path} returned a loss {shape}: it must be a scalar tensor")
    if inputs.trainer_logprobs_N.requires_grad and not loss.requires_grad:
        raise UserError(f"objective {path} returned a loss without a gradient: make it of inputs.trainer_logprobs_N")
    own = {name: _metric(path, name, value) for name, value in _table(path, outputs.metrics).items()}
    return LossOutputs(loss=loss, metrics={NUM_TOKENS: inputs.loss_mask_N.sum(), LOSS: loss.detach()} | own)


def _table(path: str, metrics: object) -> Mapping[Any, object]:
    if not isinstance(metrics, Mapping):
        raise UserError(f"objective {path} returned metrics of type {type(metrics).__name__}: it must be a dict")
    return metrics


def _metric(path: str, name: object, value: object) -> Tensor:
    if not isinstance(name, str) or name.partition("/")[0] not in ("sum", "max", "min") or "/" not in name:
        raise UserError(f"objective {path} returned the metric {name!r}: its name must begin with sum/, max/ or min/")
    if not isinstance(value, Tensor) or value.dim():
        raise UserError(f"objective {path} returned a metric {name} that is no scalar tensor")
    return value.detach()
