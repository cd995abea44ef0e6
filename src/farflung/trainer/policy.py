"""The model being trained: float32 masters, the policy that is published, and an optimizer between them.

    masters (float32)  --round to bf16-->  published  --forward, backward-->  gradient  --optimizer-->  masters

The forward pass runs on the published weights (their bf16 values, computed in float32 where there are no bf16 units),
so at staleness 0 the trainer's ratio to the sampler is 1, and the gradient goes to the masters. Gradients of
micro-batches add up in float32 whatever the pass computes in. Does not know rewards, slots or files.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

from farflung.errors import UserError
from farflung.model.config import ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.weights import load_hf_state, publishable_state, state_to_hf
from farflung.trainer.config import ComputeConfig, OptimizerConfig
from farflung.trainer.optim import make_optimizers

CPU_FLOAT32 = ComputeConfig()


class Policy:
    """One per trainer. Tensors stay on one device."""

    def __init__(
        self,
        config: ModelConfig,
        state: Mapping[str, Tensor],
        optimizer: OptimizerConfig,
        compute: ComputeConfig = CPU_FLOAT32,
    ) -> None:
        """Start from weights under Hugging Face names, with an optimizer that has seen nothing.

        Raises:
            UserError: this machine has no such device.
        """
        self.config = config
        self.device = _device(compute.device)
        self.masters = Decoder(config, device=self.device)
        self.published = Decoder(
            config,
            dtype=torch.bfloat16 if compute.dtype == "bfloat16" else torch.float32,
            device=self.device,
            may_be_slow=True,
            keeps_activations=not compute.activation_checkpointing,
        )
        load_hf_state(self.masters, state)
        self._optimizers = make_optimizers(self.masters, optimizer)
        self.round_masters()

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

    def apply_gradient(self, lr: float, max_grad_norm: float) -> float | None:
        """One optimizer step on the masters from the gradient that has been collected; it is consumed.

        At learning rate 0 the moments move and the weights do not, by not a single bit.

        Returns:
            The global gradient norm before clipping; None if it was not finite, in which case nothing has changed.
        """
        self.collect_gradient()
        gradients = []
        for published, master in self._pairs():
            if published.grad is not None:
                master.grad, published.grad = published.grad, None
            if master.grad is not None:
                gradients.append(master)
        norm = float(torch.nn.utils.clip_grad_norm_(gradients, max_grad_norm))
        is_finite = norm < float("inf")  # nan compares false as well
        if is_finite:
            self._optimize(lr)
            self.round_masters()
        self.masters.zero_grad(set_to_none=True)
        return norm if is_finite else None

    def _optimize(self, lr: float) -> None:
        # A step of size 0 adds 0 to every weight, which turns -0.0 into 0.0.
        kept = [parameter.detach().clone() for parameter in self.masters.parameters()] if lr == 0 else []
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()
        with torch.no_grad():
            for parameter, before in zip(self.masters.parameters(), kept, strict=False):
                parameter.copy_(before)

    def is_finite(self) -> bool:
        """Whether every weight, masters and published, is a number; what is not must never be published.

        Looks at the published ones: rounding keeps what is not finite, and the largest float32 is infinite in bf16.
        """
        return all(bool(torch.isfinite(parameter).all()) for parameter in self.published.parameters())

    def masters_state(self) -> dict[str, Tensor]:
        """float32 copies under Hugging Face names, for checkpoints."""
        return state_to_hf(self.masters)

    def published_state(self) -> dict[str, Tensor]:
        """bf16 copies under Hugging Face names: the policy."""
        return publishable_state(state_to_hf(self.masters))

    def optimizer_state(self) -> dict[str, Tensor]:
        """Moments and step counts by parameter name; empty before the first step."""
        state: dict[str, Tensor] = {}
        for name, parameter in self.masters.named_parameters():
            for key, value in self._moments_of(parameter).items():
                state[f"{key}/{name}"] = value
        return state

    def _moments_of(self, parameter: Tensor) -> dict[str, Tensor]:
        return next((each.state[parameter] for each in self._optimizers if parameter in each.state), {})

    def restore(self, masters: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Go back to what `masters_state` and `optimizer_state` gave."""
        load_hf_state(self.masters, masters)
        self.round_masters()
        parameters = dict(self.masters.named_parameters())
        owners = {
            parameter: each for each in self._optimizers for group in each.param_groups for parameter in group["params"]
        }
        for each in self._optimizers:
            each.state.clear()
        for full_name, value in optimizer.items():
            key, name = full_name.split("/", 1)
            # Moments lie with their parameter, step counts (without dimensions) always on the CPU.
            device = self.device if value.ndim else "cpu"
            owners[parameters[name]].state[parameters[name]][key] = value.to(device, copy=True)


def _device(name: str) -> torch.device:
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"trainer.compute.device is {name} and this machine has {torch.cuda.device_count()} such devices: set cpu, "
            "or install torch for CUDA"
        )
    return device
