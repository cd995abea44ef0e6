"""Policy objectives by name: which function, with which parameters, and what is added to it.

    guard -> objective + entropy bonus + KL to a reference

One file each; all have the signature `(inputs, params, num_loss_tokens) -> LossOutputs`. Custom ones have it too;
whoever reads the configuration imports them, not this module.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from farflung.rl.checks import require
from farflung.rl.cispo import CispoParams, cispo_loss
from farflung.rl.dapo import DapoParams, dapo_loss
from farflung.rl.dppo import DppoParams, dppo_loss
from farflung.rl.dr_grpo import DrGrpoParams, dr_grpo_loss
from farflung.rl.entropy import EntropyParams, entropy_loss
from farflung.rl.gepo import GepoParams, gepo_loss
from farflung.rl.grpo import GrpoParams, grpo_loss
from farflung.rl.gspo import GspoParams, gspo_loss
from farflung.rl.guards import NO_GUARD, GuardParams, guarded, require_fit
from farflung.rl.ipo import IpoParams, ipo_loss
from farflung.rl.kl import KlParams, kl_loss
from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.policy_metrics import advantage_metrics
from farflung.rl.ppo import PpoParams, ppo_loss
from farflung.rl.ratio import Anchor
from farflung.rl.reinforce import ReinforceParams, reinforce_loss
from farflung.rl.sapo import SapoParams, sapo_loss
from farflung.rl.vespo import VespoParams, vespo_loss

ParamValue = bool | int | float | str
ObjectiveFunction = Callable[[LossInputs, Any, int], LossOutputs]
"""Its second argument is what its own `make_params` gave."""

OBJECTIVES: Mapping[str, tuple[Callable[..., Any], ObjectiveFunction]] = {
    "grpo": (GrpoParams, grpo_loss),
    "dr_grpo": (DrGrpoParams, dr_grpo_loss),
    "dapo": (DapoParams, dapo_loss),
    "ppo": (PpoParams, ppo_loss),
    "gspo": (GspoParams, gspo_loss),
    "cispo": (CispoParams, cispo_loss),
    "gepo": (GepoParams, gepo_loss),
    "sapo": (SapoParams, sapo_loss),
    "vespo": (VespoParams, vespo_loss),
    "reinforce": (ReinforceParams, reinforce_loss),
    "dppo": (DppoParams, dppo_loss),
    "ipo": (IpoParams, ipo_loss),
}
"""Name -> (parameters, function)."""
MAX_LENGTH = "max_length_tokens"
MAX_PARAM = 1e9
"""No parameter of an objective means anything beyond it, and float32 ends at 3e38."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """A function with its parameters, guarded and regularised; called once per micro-batch."""

    function: ObjectiveFunction
    params: Any
    guard: GuardParams = NO_GUARD
    entropy: EntropyParams | None = None
    kl: KlParams | None = None

    def __post_init__(self) -> None:
        require_fit(self.guard, weighs=self.guard_weighs)

    def __call__(self, inputs: LossInputs, num_loss_tokens: int) -> LossOutputs:
        """Raises `ValueError` where the inputs lack what a part needs."""
        guarded_inputs, metrics = guarded(inputs, self.guard, weighs=self.guard_weighs)
        metrics |= advantage_metrics(inputs)
        parts = [self.function(guarded_inputs, self.params, num_loss_tokens)]
        if self.entropy is not None:
            parts.append(entropy_loss(inputs, self.entropy, num_loss_tokens))
        if self.kl is not None:
            parts.append(kl_loss(inputs, self.kl, num_loss_tokens))
        for part in parts[1:]:
            metrics |= part.metrics
        loss = parts[0].loss
        for part in parts[1:]:
            loss = loss + part.loss
        return LossOutputs(loss=loss, metrics=metrics | parts[0].metrics)

    @property
    def anchor(self) -> Anchor:
        """ "behaviour" unless the parameters say otherwise."""
        anchor: Anchor = getattr(self.params, "anchor", "behaviour")
        return anchor

    @property
    def guard_weighs(self) -> bool:
        """Whether the guard's weight is the correction; else it only keeps or drops."""
        return self.anchor == "decoupled" and not isinstance(self.params, GrpoParams)

    def with_coefficients(self, *, kl: float, entropy: float) -> "Objective":
        """The same with other weights of what is added; 0 leaves a part out. What is not there stays away."""
        return replace(
            self,
            kl=replace(self.kl, coefficient=kl) if self.kl is not None and kl else None,
            entropy=replace(self.entropy, coefficient=entropy) if self.entropy is not None and entropy else None,
        )


def make_params(name: str, values: Mapping[str, ParamValue], *, max_length_tokens: int) -> Any:
    """Parameters of the objective called `name`.

    Args:
        values: by field name; what is absent has its default.
        max_length_tokens: default of the field of that name, where an objective has it.

    Raises:
        ValueError: an unknown objective or parameter, with the list of valid ones; a value of the wrong type or range.
    """
    require(
        name in OBJECTIVES,
        f"objective is {name!r}: it must be one of {', '.join(OBJECTIVES)}, or package.module:function",
    )
    params_type, _ = OBJECTIVES[name]
    valid = {field.name: str(field.type) for field in fields(params_type)}  # type: ignore[arg-type]
    for key, value in values.items():
        is_bounded = isinstance(value, str) or abs(value) <= MAX_PARAM
        require(is_bounded, f"objective {name!r}: {key} is {value}: at most {MAX_PARAM:g} can be meant")
        require(key in valid, f"objective {name!r} has no parameter {key!r}: it has {', '.join(valid)}")
    given = dict(values)
    if MAX_LENGTH in valid:
        given.setdefault(MAX_LENGTH, max_length_tokens)
    try:
        return params_type(**given)
    except TypeError as error:
        raise ValueError(f"parameters {given} of objective {name!r} have a value of the wrong type: {error}") from error
