"""Muon: momentum whose matrices are replaced by the nearest orthogonal ones, so that no direction is learned faster.

    B <- momentum B + G;   U = G + momentum B                    (Nesterov)
    O = orthogonalised U;   W <- W - lr decay W - lr 0.2 sqrt(max(rows, columns)) O

The factor gives the update the root mean square of an AdamW step, so that learning rate and decay mean the same for
both (2502.16982, section 2.2). Newton-Schulz iteration and coefficients: Keller Jordan, kellerjordan.github.io/posts/
muon. In float32, where `torch.optim.Muon` computes in bf16: CPUs without bf16 units are slow at that, and it keeps two
digits. What is one matrix to it may be several stacked on top of each other here (fused q, k and v).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NUM_ITERATIONS = 5
"""Singular values between 1e-3 and 1 of the largest land between 0.6 and 1.2."""
UPDATE_RMS = 0.2
"""Of a usual AdamW step."""
MAX_STACK_NUMBERS = 1 << 24
"""Equal matrices are orthogonalised together, up to 64 MiB of them: few kernels for small models, little memory for
large ones."""


class Muon(torch.optim.Optimizer):
    """Matrices only; state is one momentum per parameter, `momentum`."""

    def __init__(
        self, matrices: Iterable[Tensor], *, momentum: float, weight_decay: float, rows: Mapping[Tensor, Sequence[int]]
    ) -> None:
        """
        Args:
            rows: of a parameter that is several matrices on top of each other: the rows of each.
        """
        super().__init__(matrices, {"lr": 0.0, "momentum": momentum, "weight_decay": weight_decay})
        self._rows = rows

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Parameters without a gradient stay. There is no closure."""
        assert closure is None
        for group in self.param_groups:
            self._step([parameter for parameter in group["params"] if parameter.grad is not None], group)

    def _step(self, parameters: Sequence[Tensor], group: Mapping[str, Any]) -> None:
        by_shape: defaultdict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for parameter in parameters:
            update = self._momentum(parameter, group["momentum"])
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            rows = list(self._rows.get(parameter, [len(parameter)]))
            for weights, part in zip(parameter.split(rows), update.split(rows), strict=True):
                by_shape[part.shape].append((weights, part))
        for shape, pairs in by_shape.items():
            scale = group["lr"] * UPDATE_RMS * math.sqrt(max(shape))
            stacked = max(1, MAX_STACK_NUMBERS // shape.numel())
            for first in range(0, len(pairs), stacked):
                some = pairs[first : first + stacked]
                updates_BRC = orthogonalise(torch.stack([part for _, part in some]))
                for (weights, _), update in zip(some, updates_BRC, strict=True):
                    weights.sub_(update, alpha=scale)

    def _momentum(self, parameter: Tensor, momentum: float) -> Tensor:
        assert parameter.grad is not None
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        buffer: Tensor = state["momentum"]
        buffer.mul_(momentum).add_(parameter.grad)
        return parameter.grad.add(buffer, alpha=momentum)


def orthogonalise(matrices_BRC: Tensor) -> Tensor:
    """[B, R, C] -> matrices with the same singular vectors and singular values near 1; zeros stay zeros."""
    a, b, c = NEWTON_SCHULZ
    is_tall = matrices_BRC.shape[1] > matrices_BRC.shape[2]
    x = matrices_BRC.mT if is_tall else matrices_BRC
    # The Frobenius norm bounds the largest singular value, which must not exceed 1.
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_(min=torch.finfo(x.dtype).tiny)
    for _ in range(NUM_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x
