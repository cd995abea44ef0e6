"""Settings of supervised fine-tuning."""

from pydantic import Field

from farflung.config.base import Config
from farflung.trainer.config import AdapterConfig, ComputeConfig, OptimizerConfig


class SftConfig(Config):
    """Of `farflung sft`."""

    epochs: int = Field(1, ge=1, le=10_000, description="Passes over the examples.")
    batch_size: int = Field(16, ge=1, description="Examples per optimizer step.")
    max_tokens: int = Field(2048, ge=2, description="Longer examples are left out and counted, never cut.")
    micro_batch_tokens: int = Field(8192, ge=2, description="Most tokens in one forward pass.")
    lora: AdapterConfig = AdapterConfig()
    optimizer: OptimizerConfig = OptimizerConfig(lr=1e-5, schedule="linear")
    compute: ComputeConfig = ComputeConfig()
    heldout_share: float = Field(0.05, ge=0, lt=1, description="Share of the examples that only measures the loss.")
    eval_every_steps: int = Field(50, ge=1, description="Steps between measurements on held-out examples.")
    checkpoint_every_steps: int = Field(50, ge=1, description="At most so many steps are lost at a kill.")
    seed: int = Field(0, ge=0, description="Of the order and of the choice of held-out examples.")
