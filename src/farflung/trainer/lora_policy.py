"""The model being trained through an adapter: its base never changes and has no gradient.

    adapter (float32)  --merged, rounded to bf16-->  published  --forward, backward-->  gradient of A and B

    publish = merged     W' = bf16(W + scale B A) is published and computed with; A and B get the gradient of the sum
    publish = adapter    bf16(A) and bf16(B) are published and computed with beside the base

Either way the trainer computes with what samplers have. Does not know rewards, slots or files.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor
from torch.nn import Parameter

from farflung.engine.base import Engine
from farflung.model.adapted import attach, load_adapter, set_merged, take_gradient
from farflung.model.adapter_files import CONFIG as ADAPTER_CONFIG
from farflung.model.adapter_files import WEIGHTS as ADAPTER_WEIGHTS
from farflung.model.adapter_files import Adapter, config_bytes, weights_bytes
from farflung.model.config import ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.lora import LoraSpec, check_adapter, merge
from farflung.model.weights import load_hf_state, publishable_state, state_to_hf, to_safetensors_bytes
from farflung.trainer.config import ComputeConfig, OptimizerConfig
from farflung.trainer.optim import adapter_optimizers
from farflung.trainer.policy_base import CPU_FLOAT32, PolicyBase, WeightsFile, decoder_for, device_of
from farflung.wire.canonical import sha256_hex

Publish = Literal["merged", "adapter"]


class LoraPolicy(PolicyBase):
    """Only the adapter is trained."""

    config: ModelConfig
    lora: LoraSpec

    def __init__(
        self,
        config: ModelConfig,
        base: Mapping[str, Tensor],
        adapter: Mapping[str, Tensor],
        spec: LoraSpec,
        publish: Publish,
        optimizer: OptimizerConfig,
        compute: ComputeConfig = CPU_FLOAT32,
    ) -> None:
        """Start from an adapter, with an optimizer that has seen nothing.

        Args:
            base: whole model under Hugging Face names; used in bf16, as it is published.

        Raises:
            UserError: this machine has no such device, or the adapter does not fit.
        """
        self.config, self.lora, self.publish = config, spec, publish
        self.device = device_of(compute)
        check_adapter(config, spec, adapter)
        # In one order wherever they come from: the norm of a gradient is a sum over them.
        self._masters = {
            name: Parameter(adapter[name].detach().to(self.device, torch.float32, copy=True))
            for name in sorted(adapter)
        }
        base = {name: tensor.to(self.device) for name, tensor in publishable_state(base).items()}
        self.base_sha256 = sha256_hex(to_safetensors_bytes(base))
        """Of the base's file, for whoever goes on."""
        published = decoder_for(config, compute, self.device)
        assert isinstance(published, Decoder), "adapters are those of the own decoder"
        self.published: Decoder = published
        attach(self.published, spec, requires_grad=True)
        set_merged(self.published, is_merged=publish == "merged")
        load_hf_state(self.published, base)
        # Merged, the decoder holds sums: what is below them is kept beside it.
        self._below = base if publish == "merged" else None
        self._optimizers = adapter_optimizers(self._masters.values(), optimizer)
        self.round_masters()

    def master_parameters(self) -> dict[str, Parameter]:
        """float32 A and B by name."""
        return self._masters

    @property
    def supervised(self) -> Decoder:
        """The published one: the base is there once only."""
        return self.published

    @torch.no_grad()
    def round_masters(self) -> None:
        """Make what is published follow the masters."""
        self._put(self._masters)

    def _put(self, adapter: Mapping[str, Tensor]) -> None:
        if self.publish == "merged":
            load_adapter(self.published, adapter, self.lora)
            load_hf_state(self.published, merge(self.base_state(), adapter, self.lora, dtype=torch.bfloat16))
        else:
            load_adapter(self.published, publishable_state(adapter), self.lora)

    @contextmanager
    def as_it_was(self, masters: Mapping[str, Tensor]) -> Iterator[Decoder]:
        """What passes are computed with, as it was when the masters were these; as it is again afterwards."""
        with torch.no_grad():
            self._put(masters)
            try:
                yield self.published
            finally:
                self.round_masters()

    def collect_gradient(self) -> None:
        """After each backward pass: the gradient of A and B joins those before it in float32."""
        for name, gradient in take_gradient(self.published, self.lora).items():
            master = self._masters[name]
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)

    def _gather_gradient(self) -> None:
        self.collect_gradient()

    def descend(self, optimizer: torch.optim.Optimizer, max_grad_norm: float) -> None:
        """What is published follows at once, since the next pass is computed with it."""
        self.collect_gradient()
        torch.nn.utils.clip_grad_norm_(self._masters.values(), max_grad_norm)
        optimizer.step()
        self.round_masters()

    def is_finite(self) -> bool:
        """Published apart, only the adapter can have changed."""
        if self.publish == "merged":
            return super().is_finite()
        learned = (parameter for parameter in self.published.parameters() if parameter.requires_grad)
        return all(bool(torch.isfinite(parameter).all()) for parameter in learned)

    def masters_state(self) -> dict[str, Tensor]:
        """float32 copies of A and B."""
        return {name: parameter.detach().clone() for name, parameter in self._masters.items()}

    def adapter(self, masters: Mapping[str, Tensor] | None = None) -> Adapter:
        """Copies of A and B that give the policy with the base: bf16 when adapters are published, else float32."""
        masters = self._masters if masters is None else masters
        if self.publish == "adapter":
            return Adapter(spec=self.lora, state=publishable_state(masters))
        return Adapter(spec=self.lora, state={name: tensor.detach().clone() for name, tensor in masters.items()})

    @torch.no_grad()
    def published_state(self, masters: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """bf16 weights of the whole model with the adapter inside."""
        adapter = {name: tensor.to(self.device) for name, tensor in self.adapter(masters).state.items()}
        return merge(self.base_state(), adapter, self.lora, dtype=torch.bfloat16)

    def base_state(self) -> dict[str, Tensor]:
        """bf16 weights below the adapter, under Hugging Face names."""
        return publishable_state(state_to_hf(self.published)) if self._below is None else self._below

    @property
    def config_files(self) -> dict[str, bytes]:
        """The adapter's configuration, when it is published."""
        return {ADAPTER_CONFIG: config_bytes(self.lora)} if self.publish == "adapter" else {}

    def weights_file(self, masters: Mapping[str, Tensor] | None = None) -> WeightsFile:
        """The adapter alone, when it is published."""
        if self.publish == "merged":
            return super().weights_file(masters)
        state = self.adapter(masters).state
        return WeightsFile(name=ADAPTER_WEIGHTS, data=weights_bytes(state), state=state)

    def base_file(self) -> bytes | None:
        """None when whole weights are published."""
        return to_safetensors_bytes(self.base_state()) if self.publish == "adapter" else None

    def load_into(self, engine: Engine, policy_version: int) -> None:
        """The base once, then adapters beside it, when these are published."""
        if self.publish == "merged":
            super().load_into(engine, policy_version)
            return
        if engine.policy_version < 0:
            engine.load_weights(self.base_state(), policy_version)
        engine.load_adapter(self.adapter(), policy_version)

    def _load_masters(self, masters: Mapping[str, Tensor]) -> None:
        check_adapter(self.config, self.lora, masters)
        with torch.no_grad():
            for name, parameter in self._masters.items():
                parameter.copy_(masters[name])
