"""An engine without a model, with stated properties, for tests of whatever calls an engine.

Unscripted: every token is uniform over the unreserved ids, a function of (draw seed, group, sample, position), and its
logprob is exactly `-log(number of unreserved ids)`. Scripted: a prompt with a script gets that completion, every time,
with the same logprob. Hidden states are zeros but for the first entry, which is the token that they predict.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.engine.base import Cancelled, Completion, EngineStats, GroupRequest, SamplingParams, StateSink, in_order
from farflung.model.adapter_files import Adapter
from farflung.model.weights_update import Changed
from farflung.slots.noise import noise_bits, position_keys, row_keys
from farflung.wire.rollout import StopReason

Script = Callable[[Sequence[int]], Sequence[int] | None]
"""Prompt ids -> completion ids (cut after the first end-of-sequence id or at the limit), or None: draw."""


class FakeEngine:
    """Implements `engine.base.Engine`; weights are remembered, not used."""

    def __init__(
        self,
        vocab_size: int,
        *,
        script: Script | None = None,
        hidden_size: int = 8,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        self._vocab_size, self._script, self._hidden_size = vocab_size, script, hidden_size
        self._should_stop = should_stop
        self._policy_version = -1
        self._num_tokens = 0
        self.state: Mapping[str, Tensor] = {}
        """What was loaded last."""
        self.adapter: Adapter | None = None
        self.changed: Changed | None = None

    @property
    def policy_version(self) -> int:
        """Version of the loaded weights; -1 before the first load."""
        return self._policy_version

    @property
    def stats(self) -> EngineStats:
        """Tokens since construction; drawing takes no time here."""
        return EngineStats(num_tokens=self._num_tokens, busy_s=0.0)

    def load_weights(self, state: Mapping[str, Tensor], policy_version: int) -> None:
        """Remember them."""
        self.state, self.adapter, self._policy_version = state, None, policy_version

    def update_weights(self, state: Mapping[str, Tensor], changed: Changed, policy_version: int) -> None:
        """Remember them, and what was said of them."""
        self.load_weights(state, policy_version)
        self.changed = changed

    def load_adapter(self, adapter: Adapter, policy_version: int) -> None:
        """Remember it."""
        self.adapter, self._policy_version = adapter, policy_version

    def generate(
        self,
        requests: Sequence[GroupRequest],
        params: SamplingParams,
        draw_seed: bytes,
        *,
        with_hidden: bool = False,
        sink: StateSink | None = None,
    ) -> list[Completion]:
        """As `engine.base.Engine.generate`; a `temperature` of 0 makes every token the lowest unreserved id."""
        unreserved = np.setdiff1d(np.arange(self._vocab_size), params.reserved_token_ids).astype(np.int32)
        completions = []
        for request in in_order(requests):
            if not len(request.prompt_tokens):
                raise ValueError(f"group {request.group}: the prompt is empty: it needs at least one token")
            for sample in request.samples:
                if self._should_stop is not None and self._should_stop():
                    raise Cancelled
                tokens = self._tokens(request, sample, params, draw_seed, unreserved)
                made = self._completion(request, sample, tokens, params, len(unreserved), with_hidden)
                completions.append(made)
                if sink is not None:
                    sink.add(request.group, sample, torch.from_numpy(self._hidden(made.tokens)))
        return sorted(completions, key=lambda completion: (completion.group, completion.sample))

    def _tokens(
        self,
        request: GroupRequest,
        sample: int,
        params: SamplingParams,
        draw_seed: bytes,
        unreserved: NDArray[np.int32],
    ) -> NDArray[np.int32]:
        scripted = None if self._script is None else self._script(request.prompt_tokens.tolist())
        if scripted is not None:
            return np.array(scripted, dtype=np.int32)
        num_tokens = request.limit(params)
        if params.temperature == 0:
            return np.full(num_tokens, unreserved[0])
        positions = np.arange(request.first_position, request.first_position + num_tokens)
        keys = position_keys(row_keys(draw_seed, [(request.group, sample)]), positions)
        return unreserved[noise_bits(keys[0], 1)[:, 0] % len(unreserved)]

    def _completion(
        self,
        request: GroupRequest,
        sample: int,
        tokens: NDArray[np.int32],
        params: SamplingParams,
        num_unreserved: int,
        with_hidden: bool,
    ) -> Completion:
        longest = request.limit(params)
        ends = np.flatnonzero(np.isin(tokens, params.eos_token_ids))
        has_eos = bool(ends.size) and ends[0] < longest
        tokens = tokens[: ends[0] + 1 if has_eos else longest]
        self._num_tokens += len(tokens)
        return Completion(
            group=request.group,
            sample=sample,
            tokens=tokens,
            logprobs=np.full(len(tokens), -np.log(num_unreserved), dtype=np.float32),
            stop_reason=StopReason.EOS if has_eos else StopReason.LENGTH,
            hidden=self._hidden(tokens) if with_hidden else None,
        )

    def _hidden(self, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
        hidden = np.zeros((len(tokens), self._hidden_size), dtype=np.float32)
        hidden[:, 0] = tokens
        return hidden
