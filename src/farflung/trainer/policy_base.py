"""What is trained, whole or as an adapter: float32 masters, a published policy, and an optimizer between them.

    masters (float32)  --rounded-->  published  --forward, backward-->  gradient  --optimizer-->  masters

The forward pass runs on what is published, so at staleness 0 the trainer's ratio to the sampler is 1, and the gradient
goes to the masters. Does not know rewards, slots or files.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter

from farflung.engine.base import Engine
from farflung.model.adapter_files import Adapter
from farflung.model.any_config import AnyConfig
from farflung.model.build import AnyDecoder, build_decoder
from farflung.model.devices import find_device
from farflung.model.folder import WEIGHTS_FILE
from farflung.model.weights import to_safetensors_bytes
from farflung.trainer.config import ComputeConfig

CPU_FLOAT32 = ComputeConfig()
MASTERS_DTYPE = "float32"


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class WeightsFile:
    """Of one version."""

    name: str
    data: bytes
    state: Mapping[str, Tensor]
    """What lies in it."""


class PolicyBase(ABC):
    """One per trainer. Tensors stay on one device."""

    config: AnyConfig
    device: torch.device
    published: AnyDecoder
    """What passes are computed with."""
    _optimizers: Sequence[torch.optim.Optimizer]

    @abstractmethod
    def master_parameters(self) -> Mapping[str, Parameter]:
        """float32, by name: what the optimizer moves and a checkpoint keeps."""

    @property
    @abstractmethod
    def supervised(self) -> AnyDecoder:
        """What a warm start computes with; see `descend`."""

    @abstractmethod
    def round_masters(self) -> None:
        """Make the published weights follow the masters."""

    @abstractmethod
    def collect_gradient(self) -> None:
        """After each backward pass: see to it that the next one adds up in float32."""

    @abstractmethod
    def descend(self, optimizer: torch.optim.Optimizer, max_grad_norm: float) -> None:
        """A step of an optimizer of `master_parameters` after a backward pass through `supervised`."""

    @abstractmethod
    def masters_state(self) -> dict[str, Tensor]:
        """float32 copies, for checkpoints: under Hugging Face names, of what is trained only."""

    @abstractmethod
    def published_state(self, masters: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """bf16 weights of a whole model under Hugging Face names: the policy.

        Args:
            masters: of another version, as `masters_state` gave them; None = now.
        """

    @abstractmethod
    def _load_masters(self, masters: Mapping[str, Tensor]) -> None:
        """As `masters_state` gave them."""

    @abstractmethod
    def _gather_gradient(self) -> None:
        """All that has been collected lies with the masters afterwards, and nowhere else."""

    @property
    def config_files(self) -> dict[str, bytes]:
        """Files of every version beside the model's own configuration."""
        return {}

    def weights_file(self, masters: Mapping[str, Tensor] | None = None) -> WeightsFile:
        """What changes from version to version; `masters` as in `published_state`."""
        state = self.published_state(masters)
        return WeightsFile(name=WEIGHTS_FILE, data=to_safetensors_bytes(state), state=state)

    def adapter(self) -> Adapter | None:
        """What is trained beside a base, as it is now; None if all weights are."""
        return None

    def base_file(self) -> bytes | None:
        """`model.safetensors` below what changes, the same for every version; None if there is none."""
        return None

    def load_into(self, engine: Engine, policy_version: int) -> None:
        """The policy as samplers have it. The engine must be used for this policy alone."""
        engine.load_weights(self.published_state(), policy_version)

    def apply_gradient(self, lr: float, max_grad_norm: float) -> float | None:
        """One optimizer step on the masters from the gradient that has been collected; it is consumed.

        At learning rate 0 the moments move and the weights do not, by not a single bit.

        Returns:
            The global gradient norm before clipping; None if it was not finite, in which case nothing has changed.
        """
        self._gather_gradient()
        masters = list(self.master_parameters().values())
        gradients = [master for master in masters if master.grad is not None]
        norm = float(torch.nn.utils.clip_grad_norm_(gradients, max_grad_norm))
        is_finite = norm < float("inf")  # nan compares false as well
        if is_finite:
            self._optimize(lr)
            self.round_masters()
        for master in masters:
            master.grad = None
        return norm if is_finite else None

    def _optimize(self, lr: float) -> None:
        masters = self.master_parameters().values()
        # A step of size 0 adds 0 to every weight, which turns -0.0 into 0.0.
        kept = [parameter.detach().clone() for parameter in masters] if lr == 0 else []
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()
        with torch.no_grad():
            for parameter, before in zip(masters, kept, strict=False):
                parameter.copy_(before)

    def is_finite(self) -> bool:
        """Whether every weight, masters and published, is a number; what is not must never be published.

        Looks at the published ones: rounding keeps what is not finite, and the largest float32 is infinite in bf16.
        """
        return all(bool(torch.isfinite(parameter).all()) for parameter in self.published.parameters())

    def optimizer_state(self) -> dict[str, Tensor]:
        """Moments and step counts by parameter name; empty before the first step."""
        state: dict[str, Tensor] = {}
        for name, parameter in self.master_parameters().items():
            for key, value in self._moments_of(parameter).items():
                state[f"{key}/{name}"] = value
        return state

    def _moments_of(self, parameter: Tensor) -> dict[str, Tensor]:
        return next((each.state[parameter] for each in self._optimizers if parameter in each.state), {})

    def restore(self, masters: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Go back to what `masters_state` and `optimizer_state` gave."""
        self._load_masters(masters)
        self.round_masters()
        parameters = self.master_parameters()
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


def device_of(compute: ComputeConfig) -> torch.device:
    """Raises UserError: this machine has no such device."""
    return find_device(compute.device, "trainer.compute.device")


def decoder_for(config: AnyConfig, compute: ComputeConfig, device: torch.device) -> AnyDecoder:
    """What passes are computed with, without weights yet."""
    return build_decoder(
        config,
        dtype=torch.bfloat16 if compute.dtype == "bfloat16" else torch.float32,
        device=device,
        may_be_slow=True,
        keeps_activations=not compute.activation_checkpointing,
    )
