"""Optimizers of the float32 masters, by name."""

from farflung.trainer.optim.build import make_optimizers

__all__ = ["make_optimizers"]
