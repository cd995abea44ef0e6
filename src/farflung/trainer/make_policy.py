"""The policy that settings describe: all weights, or an adapter beside them."""

from collections.abc import Mapping

from torch import Tensor

from farflung.errors import UserError
from farflung.model.any_config import AnyConfig
from farflung.model.config import ModelConfig
from farflung.model.lora import TARGETS, LoraSpec, fresh_adapter
from farflung.trainer.config import AdapterConfig, ComputeConfig, OptimizerConfig
from farflung.trainer.lora_policy import LoraPolicy, Publish
from farflung.trainer.policy import Policy
from farflung.trainer.policy_base import PolicyBase


def make_policy(
    config: AnyConfig,
    state: Mapping[str, Tensor],
    lora: AdapterConfig,
    optimizer: OptimizerConfig,
    compute: ComputeConfig,
    *,
    publish: Publish = "merged",
    seed: int,
    masters: Mapping[str, Tensor] | None = None,
) -> PolicyBase:
    """
    Args:
        state: whole model under Hugging Face names; where an adapter is trained, what lies below it.
        publish: as `LoraPolicy`.
        seed: of a fresh adapter.
        masters: from a checkpoint; None = none yet.

    Raises:
        UserError: an adapter for a model that is not run by the own decoder, or no such device.
    """
    if not lora.rank:
        return Policy(config, state if masters is None else masters, optimizer, compute)
    if not isinstance(config, ModelConfig):
        raise UserError(
            f"lora.rank is {lora.rank}, but {config.architecture} is run by transformers ({config.reason}): adapters "
            "are those of the own decoder; set lora.rank to 0"
        )
    spec = lora_spec(lora)
    adapter = fresh_adapter(config, spec, seed) if masters is None else masters
    return LoraPolicy(config, state, adapter, spec, publish, optimizer, compute)


def lora_spec(config: AdapterConfig) -> LoraSpec:
    """Of an adapter that is configured; targets in the order of the forward pass."""
    return LoraSpec(
        rank=config.rank,
        alpha=config.alpha,
        targets=tuple(target for target in TARGETS if target in config.targets),
        is_rank_stabilised=config.rank_stabilised,
    )
