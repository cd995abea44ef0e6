"""Optimizers of the float32 masters, by name."""

from farflung.trainer.optim.build import adapter_optimizers, make_optimizers

__all__ = ["adapter_optimizers", "make_optimizers"]
