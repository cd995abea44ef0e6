"""The model being trained whole: float32 masters, the policy that is published, and an optimizer between them.

    masters (float32)  --round to bf16-->  published  --forward, backward-->  gradient  --optimizer-->  masters

The forward pass runs on the published weights (their bf16 values, computed in float32 where there are no bf16 units),
and gradients of micro-batches add up in float32 whatever the pass computes in. Does not know rewards, slots or files.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

from farflung.model.any_config import AnyConfig
from farflung.model.build import AnyDecoder, build_decoder
from farflung.model.weights import load_hf_state, publishable_state, state_to_hf
from farflung.trainer.config import ComputeConfig, OptimizerConfig
from farflung.trainer.optim import make_optimizers
from farflung.trainer.policy_base import CPU_FLOAT32, PolicyBase, decoder_for, device_of


class Policy(PolicyBase):
    """All weights are trained."""

    def __init__(
        self,
        config: AnyConfig,
        state: Mapping[str, Tensor],
        optimizer: OptimizerConfig,
        compute: ComputeConfig = CPU_FLOAT32,
    ) -> None:
        """Start from weights under Hugging Face names, with an optimizer that has seen nothing.

        Raises:
            UserError: this machine has no such device.
        """
        self.config = config
        self.device = device_of(compute)
        self.masters = build_decoder(config, device=self.device)
        self.published = decoder_for(config, compute, self.device)
        load_hf_state(self.masters, state)
        load_hf_state(self.published, state)  # also what is no parameter, and so not rounded from the masters
        self._optimizers = make_optimizers(self.masters, optimizer)
        self.round_masters()

    def master_parameters(self) -> dict[str, Parameter]:
        """float32, by our own names."""
        return dict(self.masters.named_parameters())

    @property
    def supervised(self) -> AnyDecoder:
        """The masters themselves."""
        return self.masters

    def round_masters(self) -> None:
        """Make the published weights follow the masters."""
        with torch.no_grad():
            for published, master in self._pairs():
                published.copy_(master.to(torch.bfloat16))

    def _pairs(self) -> Iterator[tuple[Parameter, Parameter]]:
        return zip(self.published.parameters(), self.masters.parameters(), strict=True)

    def collect_gradient(self) -> None:
        """After each backward pass: a half-precision gradient joins those before it in float32, where small ones count.

        A float32 gradient stays in `published` and adds up there.
        """
        for published, master in self._pairs():
            if published.grad is None or published.dtype == torch.float32:
                continue
            if master.grad is None:
                master.grad = published.grad.float()
            else:
                master.grad.add_(published.grad)
            published.grad = None

    def _gather_gradient(self) -> None:
        self.collect_gradient()
        for published, master in self._pairs():
            if published.grad is not None:
                master.grad, published.grad = published.grad, None

    def descend(self, optimizer: torch.optim.Optimizer, max_grad_norm: float) -> None:
        """The gradient lies with the masters already; the published weights follow later, in `round_masters`."""
        torch.nn.utils.clip_grad_norm_(self.masters.parameters(), max_grad_norm)
        optimizer.step()

    def masters_state(self) -> dict[str, Tensor]:
        """float32 copies under Hugging Face names, for checkpoints."""
        return state_to_hf(self.masters)

    def published_state(self, masters: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """bf16 copies under Hugging Face names: the policy."""
        return publishable_state(state_to_hf(self.masters) if masters is None else masters)

    def _load_masters(self, masters: Mapping[str, Tensor]) -> None:
        load_hf_state(self.masters, masters)
