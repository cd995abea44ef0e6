"""The same bits from the same inputs, every time and in every process on one kind of machine.

Sums are reordered by the number of threads and by the shapes of a batch, so both are fixed; torch is told to refuse
operations that it cannot repeat. Another processor, or another build of torch, may still differ in last bits.
"""

import torch

FIXED_BATCH_ROWS = 256
"""Rows of the engine in deterministic mode, whatever a node's own settings say: a number of rows is a shape."""


def compute_deterministically() -> None:
    """For the whole process."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # costs time
