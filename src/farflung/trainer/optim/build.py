"""Which optimizer has which parameters of a decoder.

adamw   everything; decay on matrices, never on norms and biases, on embeddings and head unless switched off
muon    matrices inside the layers; AdamW for embeddings, head, norms and biases, with the same learning rate
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from farflung.model.build import AnyDecoder
from farflung.model.decoder import Decoder
from farflung.trainer.config import OptimizerConfig
from farflung.trainer.optim.muon import Muon


def make_optimizers(decoder: AnyDecoder, config: OptimizerConfig) -> tuple[torch.optim.Optimizer, ...]:
    """Every parameter is in exactly one; learning rates are set at each step."""
    embeddings = decoder.embeddings
    tables = set(embeddings)
    inside = [parameter for parameter in decoder.parameters() if parameter not in tables]
    hidden = [parameter for parameter in inside if parameter.ndim == 2]
    stacks = [parameter for parameter in inside if parameter.ndim > 2]
    vectors = [parameter for parameter in inside if parameter.ndim < 2]
    decays_embeddings = config.weight_decay if config.decay_embeddings else 0.0
    groups = [(embeddings, decays_embeddings), (vectors, 0.0)]
    if stacks:  # fused experts of a foreign model
        groups.append((stacks, config.weight_decay))
    if config.name == "adamw":
        return (_adamw([(hidden, config.weight_decay), *groups], config),)
    muon = Muon(hidden, momentum=config.muon_momentum, weight_decay=config.weight_decay, rows=_fused_rows(decoder))
    return (muon, _adamw(groups, config))


def adapter_optimizers(
    matrices: Iterable[torch.nn.Parameter], config: OptimizerConfig
) -> tuple[torch.optim.Optimizer, ...]:
    """Of an adapter: all of it is matrices."""
    if config.name == "adamw":
        return (_adamw([(list(matrices), config.weight_decay)], config),)
    return (Muon(matrices, momentum=config.muon_momentum, weight_decay=config.weight_decay, rows={}),)


def _adamw(groups: list[tuple[list[torch.nn.Parameter], float]], config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW (1711.05101)."""
    return torch.optim.AdamW(
        [{"params": parameters, "weight_decay": decay} for parameters, decay in groups],
        lr=0.0,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        foreach=True,
    )


def _fused_rows(decoder: AnyDecoder) -> dict[Tensor, tuple[int, int, int]]:
    """The projections of queries, keys and values are matrices of their own."""
    if not isinstance(decoder, Decoder):
        return {}
    head, kv = decoder.config.head_dim, decoder.config.num_kv_heads * decoder.config.head_dim
    return {layer.qkv_proj.weight: (decoder.config.num_heads * head, kv, kv) for layer in decoder.layers}
