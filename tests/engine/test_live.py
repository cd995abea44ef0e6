"""Requests that come and go: the same tokens as alone, whatever else is in flight."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.engine.base import GroupRequest, SamplingParams
from farflung.engine.live import LiveBatch, LiveRequest, LiveToken
from farflung.engine.rows_of import rows_of
from farflung.engine.torch_engine import TorchEngine
from farflung.errors import OurFault
from farflung.model.config import LocalAttention, ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.factory import random_state
from farflung.model.weights import load_hf_state
from farflung.wire.rollout import StopReason

SIZES = {
    "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2,
    "head_dim": 8,
}  # fmt: skip
PLAIN = ModelConfig(**SIZES)
LOCAL = ModelConfig(**SIZES, local_attention=LocalAttention(window=4, rope_theta=100.0, is_local=(True, False)))
EOS = 7


def batch(config: ModelConfig = PLAIN, max_rows: int = 4, max_columns: int = 64, seed: int = 0) -> LiveBatch:
    decoder = Decoder(config).requires_grad_(False)
    load_hf_state(decoder, random_state(config, seed, std=0.3))
    return LiveBatch(rows_of(decoder), max_rows=max_rows, max_columns=max_columns, reserved_token_ids=(0, 3))


def request(
    number: int, *, length: int = 5, max_tokens: int = 12, temperature: float = 1.0, num_top: int = 0
) -> LiveRequest:
    prompt = np.random.default_rng(number).integers(4, 40, length).astype(np.int32)
    return LiveRequest(
        prompt_tokens=prompt, max_tokens=max_tokens, temperature=temperature, draw_seed=bytes([number] * 32),
        choice=number % 3, eos_token_ids=frozenset({EOS}), num_top=num_top,
    )  # fmt: skip


def finish(live: LiveBatch, streams: dict[int, list[LiveToken]]) -> dict[int, list[LiveToken]]:
    while tokens := live.step():
        for handle, token in tokens.items():
            streams.setdefault(handle, []).append(token)
    return streams


def alone(wanted: LiveRequest, config: ModelConfig = PLAIN) -> list[LiveToken]:
    live = batch(config)
    handle = live.add(wanted)
    return finish(live, {})[handle]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 20), st.integers(1, 14)), min_size=1, max_size=9),
    st.sampled_from([PLAIN, LOCAL]),
)
def test_a_request_gets_the_tokens_that_it_gets_alone(plan: list[tuple[int, int, int]], config: ModelConfig) -> None:
    live, streams, wanted = batch(config, max_rows=3), dict[int, list[LiveToken]](), dict[int, LiveRequest]()
    for number, (steps_before, length, max_tokens) in enumerate(plan):
        for _ in range(steps_before):
            for handle, token in live.step().items():
                streams.setdefault(handle, []).append(token)
        wanted_one = request(number, length=length, max_tokens=max_tokens)
        wanted[live.add(wanted_one)] = wanted_one
    finish(live, streams)
    assert streams.keys() == wanted.keys()
    for handle, stream in streams.items():
        expected = alone(wanted[handle], config)
        assert [token.token for token in stream] == [token.token for token in expected]
        assert [token.stop_reason for token in stream] == [token.stop_reason for token in expected]
        np.testing.assert_allclose([t.logprob for t in stream], [t.logprob for t in expected], atol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_answers_are_the_draws_that_rollouts_have(temperature: float) -> None:
    """Cases T3 (the same logprobs by every way of asking, also at T != 1) and T7 (the ids sent are the ids used)."""
    engine = TorchEngine(PLAIN, max_batch_rows=8)
    engine.load_weights(random_state(PLAIN, 0, std=0.3), 0)
    wanted = request(0, temperature=temperature)
    params = SamplingParams(
        temperature=temperature, max_completion_tokens=12, eos_token_ids=(EOS,), reserved_token_ids=(0, 3)
    )
    group = GroupRequest(group=0, prompt_tokens=wanted.prompt_tokens, num_samples=1)
    (completion,) = engine.generate([group], params, wanted.draw_seed)
    stream = alone(wanted)
    assert [token.token for token in stream] == completion.tokens.tolist()
    np.testing.assert_allclose([token.logprob for token in stream], completion.logprobs, atol=1e-5)


def test_a_cancelled_request_leaves_the_others_as_they_were() -> None:
    live = batch()
    first, second, third = (live.add(request(number, max_tokens=10)) for number in (1, 2, 4))
    streams: dict[int, list[LiveToken]] = {}
    for _ in range(2):
        for handle, token in live.step().items():
            streams.setdefault(handle, []).append(token)
    live.cancel(first)
    live.cancel(first)
    waiting = [live.add(request(number)) for number in (5, 7, 8)]
    live.cancel(waiting[2])
    finish(live, streams)
    assert len(streams[first]) == 2
    assert waiting[2] not in streams
    for handle, number in ((second, 2), (third, 4)):
        assert [t.token for t in streams[handle]] == [t.token for t in alone(request(number, max_tokens=10))]
    assert (live.num_live, live.num_waiting) == (0, 0)


def test_greedy_takes_the_most_likely_and_tops_are_sorted() -> None:
    stream = alone(request(3, temperature=0.0, num_top=4))
    for token in stream:
        assert token.top[0] == (token.token, pytest.approx(token.logprob))
        assert [value for _, value in token.top] == sorted((value for _, value in token.top), reverse=True)
        assert len(token.top) == 4


def test_reserved_ids_are_never_drawn_and_an_end_id_ends() -> None:
    streams = [alone(request(number, max_tokens=50)) for number in range(20)]
    drawn = {token.token for stream in streams for token in stream}
    assert not drawn & {0, 3}
    ended = [stream for stream in streams if stream[-1].stop_reason is StopReason.EOS]
    assert ended
    assert all(stream[-1].token == EOS for stream in ended)
    assert all(len(stream) == 50 for stream in streams if stream[-1].stop_reason is StopReason.LENGTH)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [({"length": 0}, "at least one"), ({"length": 60}, "64 fit"), ({"max_tokens": 0}, "at least one")],
)
def test_what_does_not_fit_is_refused(changes: dict[str, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        batch().add(request(0, **changes))


def test_broken_weights_are_our_fault() -> None:
    live = batch()
    with torch.no_grad():
        live._model_rows._decoder.norm.weight.fill_(torch.nan)
    live.add(request(0))
    with pytest.raises(OurFault, match="not finite"):
        live.step()
