"""A foreign model with the interface of `model.decoder.Decoder`: flat tokens and a layout in, states out.

Documents run whole and padded on the right, without a mask: in a causal model no token sees what lies to its right.
So it is right for every architecture, and dearer: padding is computed in every layer, a shared prompt once for each
document that begins with it, and rows that nobody asked for are computed too.

The head is replaced by one that gives back its input. What the model makes of that must be a multiple of it; then
logits are a product with the head's matrix, as everywhere here. A head's bias is a column more of that matrix, which
meets a state of 1.

Letters: N flat tokens, M wanted rows, D hidden size (one more with a bias), V vocabulary.
"""

import logging
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn

from farflung.errors import OurFault, UserError
from farflung.model.foreign import library
from farflung.model.foreign.config import ForeignConfig
from farflung.model.foreign.whole import whole_documents
from farflung.model.layout import SequenceLayout

logger = logging.getLogger(__name__)

PROBE_SIZE = 1e3
"""States that no model has: a head that squashes its logits shows."""


class ForeignDecoder(nn.Module):
    """Evaluation mode always: nothing is dropped out."""

    def __init__(
        self,
        config: ForeignConfig,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        may_be_slow: bool = False,
    ) -> None:
        """A model without weights: load them with `weights.load_hf_state`.

        Raises:
            UserError: transformers is missing or lacks the model, or its head is no product with a matrix.
            OurFault: half precision on a CPU (see `Decoder`).
        """
        super().__init__()
        if not may_be_slow and torch.device(device).type == "cpu" and dtype != torch.float32:
            raise OurFault(f"a model in {dtype} on a CPU: compute in float32 there")
        _warn(config.architecture, config.reason)
        self.config = config
        self.model = library.build(config, dtype, device)
        self._head = _Passed(self.model.get_output_embeddings(), config.architecture)
        self.model.set_output_embeddings(self._head)
        self._cache_argument = library.cache_argument(self.model)
        self._check_head()

    @property
    def lm_head_weight(self) -> Tensor:
        """[V, D]."""
        return self._head.matrix()

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Parameters and persistent buffers by name, as `library.shapes` has them."""
        return library.own_tensors(self.model)

    @property
    def embeddings(self) -> list[nn.Parameter]:
        """Matrices of tokens and of positions, and the head."""
        tables: dict[nn.Parameter, None] = {}
        for module in self.model.modules():
            if isinstance(module, nn.Embedding | _Passed):
                tables[cast("nn.Parameter", module.weight)] = None
        return list(tables)

    def states(self, tokens_BL: Tensor, cache: Any = None) -> Tensor:
        """[B, L, D] states of a block of documents or of their continuations; a cache is filled.

        Args:
            cache: of transformers; None = none is kept.
        """
        output = self.model(input_ids=tokens_BL, use_cache=cache is not None, **{self._cache_argument: cache})
        states: Tensor = output.logits
        return states

    def forward(self, tokens_N: Tensor, layout: SequenceLayout, rows_M: Tensor | None = None) -> Tensor:
        """States [N, D] or [M, D] of `rows_M`, as `Decoder.forward`."""
        whole = whole_documents(layout)
        tokens_P = tokens_N.index_select(0, whole.token_of_cell_P)
        blocks = []
        for bucket, block in zip(whole.buckets, tokens_P.split([b.num_cells for b in whole.buckets]), strict=True):
            blocks.append(self.states(block.view(bucket.num_documents, bucket.length)).flatten(0, 1))
        cells_M = whole.cell_of_flat_N if rows_M is None else whole.cell_of_flat_N.index_select(0, rows_M)
        return torch.cat(blocks).index_select(0, cells_M)

    @torch.no_grad()
    def _check_head(self) -> None:
        weight = self._head.weight
        probe = torch.linspace(-PROBE_SIZE, PROBE_SIZE, 2 * self._head.width, dtype=weight.dtype, device=weight.device)
        self._head.probe = probe.view(1, 2, -1)
        seen = self.states(torch.zeros(1, 2, dtype=torch.int64, device=weight.device))
        multiple = seen[0, 0, 0] / probe[0]
        is_multiple = seen.shape == self._head.probe.shape and torch.allclose(
            seen, multiple * self._head.probe, rtol=1e-2, atol=0
        )
        self._head.probe = None
        if not is_multiple:
            raise UserError(
                f"{self.config.architecture} changes its logits after the head (such as by a soft cap): such models "
                "are not supported"
            )


class _Passed(nn.Module):
    """Stands where the head was, with its parameters, and gives back what comes in."""

    def __init__(self, head: Any, architecture: str) -> None:
        super().__init__()
        if not isinstance(head, nn.Linear):
            raise UserError(f"the head of {architecture} is a {type(head).__name__}: it must be one matrix")
        self.weight = cast("nn.Parameter", head.weight)
        self.bias = cast("nn.Parameter | None", head.bias)
        self.probe: Tensor | None = None

    @property
    def width(self) -> int:
        return self.weight.shape[1] + (self.bias is not None)

    def matrix(self) -> Tensor:
        return self.weight if self.bias is None else torch.cat((self.weight, self.bias.unsqueeze(1)), dim=1)

    def forward(self, hidden: Tensor) -> Tensor:
        if self.probe is not None:
            return self.probe
        if self.bias is None:
            return hidden
        return torch.cat((hidden, hidden.new_ones(*hidden.shape[:-1], 1)), dim=-1)


@lru_cache(maxsize=8)
def _warn(architecture: str, reason: str) -> None:
    """Once for each model that a process runs."""
    logger.warning("%s is run by transformers, several times slower than the own decoder (%s)", architecture, reason)
