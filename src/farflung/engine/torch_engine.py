"""The own engine: continuous batching on the trainer's decoder, one process, one CPU thread or one accelerator.

It does not know where weights or requests come from.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from farflung.engine.base import Cancelled, Completion, EngineStats, GroupRequest, SamplingParams, StateSink, in_order
from farflung.engine.rows_of import rows_of
from farflung.engine.run import Run
from farflung.model.adapted import detach, put_adapter
from farflung.model.adapter_files import Adapter
from farflung.model.any_config import AnyConfig
from farflung.model.build import build_decoder
from farflung.model.weights import load_hf_state
from farflung.model.weights_update import Changed, update_hf_state


class TorchEngine:
    """Implements `engine.base.Engine`."""

    def __init__(
        self,
        config: AnyConfig,
        *,
        max_batch_rows: int,
        num_threads: int = 1,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        """Build the decoder; it has no weights yet.

        Args:
            max_batch_rows: completions in flight; the KV cache has this many rows.
            num_threads: CPU threads of the whole process. Several processes of one thread beat one of several.
            should_stop: asked before every step; when it says yes, `generate` raises `Cancelled`.
        """
        if max_batch_rows < 1:
            raise ValueError(f"max_batch_rows is {max_batch_rows}: it must be at least 1")
        torch.set_num_threads(num_threads)
        self._config, self._max_batch_rows, self._should_stop = config, max_batch_rows, should_stop
        self._decoder = build_decoder(config, dtype=dtype, device=device).requires_grad_(False)
        self._rows = rows_of(self._decoder)
        self._policy_version = -1
        self._stats = EngineStats(num_tokens=0, busy_s=0.0)

    @property
    def policy_version(self) -> int:
        """Version of the loaded weights; -1 before the first load."""
        return self._policy_version

    @property
    def stats(self) -> EngineStats:
        """Totals since construction."""
        return self._stats

    def load_weights(self, state: Mapping[str, Tensor], policy_version: int) -> None:
        """Replace all weights (Hugging Face names) and drop every key and value that the old ones made.

        Raises:
            UserError: tensors are missing, unexpected or misshapen; the old weights stay.
        """
        load_hf_state(self._decoder, state)
        detach(self._decoder)
        self._rows.clear()
        self._policy_version = policy_version

    def update_weights(self, state: Mapping[str, Tensor], changed: Changed, policy_version: int) -> None:
        """Write what changed, and drop every key and value that the old weights made.

        Raises:
            ValueError: no weights are loaded.
            UserError: tensors are missing, unexpected or misshapen; the old weights stay.
        """
        if self._policy_version < 0:
            raise ValueError("no weights are loaded: nothing can have changed")
        update_hf_state(self._decoder, state, changed)
        detach(self._decoder)
        self._rows.clear()
        self._policy_version = policy_version

    def load_adapter(self, adapter: Adapter, policy_version: int) -> None:
        """Compute with an adapter beside the loaded weights, which stay; drop every key and value made without it.

        Raises:
            ValueError: no weights are loaded.
            UserError: the adapter does not fit; the old one stays.
        """
        if self._policy_version < 0:
            raise ValueError("no weights are loaded: an adapter goes beside some")
        put_adapter(self._decoder, adapter)
        self._rows.clear()
        self._policy_version = policy_version

    def generate(
        self,
        requests: Sequence[GroupRequest],
        params: SamplingParams,
        draw_seed: bytes,
        *,
        with_hidden: bool = False,
        sink: StateSink | None = None,
    ) -> list[Completion]:
        """Sample every group to its end; ordered by (group, sample).

        Raises:
            ValueError: a prompt is empty, has ids out of range, or does not fit; a sample comes twice.
            Cancelled: `should_stop` said so; nothing of the call is kept.
            OurFault: the weights give logits that are not finite.
        """
        if self._policy_version < 0:
            raise ValueError("no weights are loaded: call load_weights first")
        if not requests:
            return []
        requests = in_order(requests)
        self._check(requests, params)
        started_s = time.perf_counter()
        with torch.inference_mode():
            run = self._begin(requests, params, draw_seed, with_hidden, sink)
            try:
                while self._go_on() and run.step():
                    pass
                return run.completions()
            finally:
                busy_s = time.perf_counter() - started_s
                self._stats = EngineStats(
                    num_tokens=self._stats.num_tokens + run.num_drawn, busy_s=self._stats.busy_s + busy_s
                )

    def _go_on(self) -> bool:
        if self._should_stop is not None and self._should_stop():
            raise Cancelled
        return True

    def _begin(
        self,
        requests: Sequence[GroupRequest],
        params: SamplingParams,
        draw_seed: bytes,
        with_hidden: bool,
        sink: StateSink | None,
    ) -> Run:
        num_rows = min(self._max_batch_rows, sum(request.num_samples for request in requests))
        longest = max(len(request.prompt_tokens) + request.limit(params) for request in requests)
        self._rows.fit(num_rows, longest)
        return Run(self._rows, requests, params, draw_seed, num_rows=num_rows, with_hidden=with_hidden, sink=sink)

    def _check(self, requests: Sequence[GroupRequest], params: SamplingParams) -> None:
        vocab_size = self._config.vocab_size
        wrong = [token for token in params.eos_token_ids if not 0 <= token < vocab_size]
        if wrong:
            raise ValueError(f"end-of-sequence ids {wrong} are outside the vocabulary of {vocab_size}")
        for request in requests:
            self._check_request(request, params)

    def _check_request(self, request: GroupRequest, params: SamplingParams) -> None:
        prompt, where, vocab_size = request.prompt_tokens, f"group {request.group}", self._config.vocab_size
        if request.num_samples < 1:
            raise ValueError(f"{where}: num_samples is {request.num_samples}: it must be at least 1")
        if not len(prompt):
            raise ValueError(f"{where}: the prompt is empty: it needs at least one token")
        lowest, highest = int(np.min(prompt)), int(np.max(prompt))
        if lowest < 0 or highest >= vocab_size:
            raise ValueError(f"{where}: prompt ids from {lowest} to {highest}: the vocabulary is 0 to {vocab_size - 1}")
        limit = request.limit(params)
        if not 0 < limit <= params.max_completion_tokens:
            raise ValueError(f"{where}: max_tokens is {limit}: it must be in 1 to {params.max_completion_tokens}")
        longest = len(prompt) + limit
        if longest > self._config.max_context_tokens:
            raise ValueError(
                f"{where}: {len(prompt)} prompt tokens and {limit} completion tokens "
                f"are {longest}: the model has {self._config.max_context_tokens} positions"
            )
