"""Sampling from models that transformers runs: its logprobs, our draws, whatever else is in flight."""

from typing import Any

import numpy as np
import pytest
import torch

from farflung.engine.base import Completion, GroupRequest, SamplingParams
from farflung.engine.live import LiveBatch, LiveRequest
from farflung.engine.rows_of import rows_of
from farflung.engine.torch_engine import TorchEngine
from farflung.model.build import build_decoder
from farflung.model.config import ModelConfig
from farflung.model.folder import LoadedModel, load_folder
from farflung.model.foreign.config import ForeignConfig
from farflung.model.weights import load_hf_state

transformers = pytest.importorskip("transformers")

from foreign_models import RUNNABLE, VOCABULARY, library_model, save  # noqa: E402 - needs transformers

EOS = 1
PARAMS = SamplingParams(temperature=0.8, max_completion_tokens=14, eos_token_ids=(EOS,), reserved_token_ids=(0, 2))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, LoadedModel]]:
    torch.set_default_dtype(torch.float32)
    folder = tmp_path_factory.mktemp("models")
    built = {name: library_model(name) for name in RUNNABLE}
    return {name: (model, load_folder(save(model, folder / name))) for name, model in built.items()}


def _requests(lengths: list[int], num_samples: int = 3) -> list[GroupRequest]:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, VOCABULARY, length).astype(np.int32) for length in lengths]
    return [GroupRequest(group=i, prompt_tokens=prompt, num_samples=num_samples) for i, prompt in enumerate(prompts)]


def _engine(model: LoadedModel, max_batch_rows: int) -> TorchEngine:
    engine = TorchEngine(model.config, max_batch_rows=max_batch_rows)
    engine.load_weights(model.state, 0)
    return engine


def _same(one: list[Completion], other: list[Completion], within: float = 0.0) -> bool:
    return all(
        np.array_equal(a.tokens, b.tokens) and np.allclose(a.logprobs, b.logprobs, rtol=0, atol=within)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("name", RUNNABLE)
def test_logprobs_and_states_are_those_of_a_whole_forward_pass(name: str, models: dict[str, Any]) -> None:
    theirs, model = models[name]
    requests = _requests([5, 9, 5])
    completions = _engine(model, 5).generate(requests, PARAMS, bytes(32), with_hidden=True)
    assert len({tuple(completion.tokens) for completion in completions}) > 6
    for completion in completions:
        prompt = requests[completion.group].prompt_tokens
        tokens = torch.tensor([*prompt, *completion.tokens], dtype=torch.int64)
        with torch.no_grad():
            logits = theirs(tokens[None]).logits[0, len(prompt) - 1 : -1] / 0.8
        logits[:, [0, 2]] = -torch.inf
        expected = logits.log_softmax(-1).gather(-1, tokens[len(prompt) :, None])[:, 0]
        torch.testing.assert_close(torch.from_numpy(completion.logprobs), expected, rtol=0, atol=3e-5)
        assert completion.hidden is not None
        assert len(completion.hidden) == len(completion.tokens)


@pytest.mark.parametrize("name", RUNNABLE)
def test_tokens_do_not_depend_on_what_else_is_in_flight(name: str, models: dict[str, Any]) -> None:
    model = models[name][1]
    requests = _requests([5, 9, 5, 2])
    together = _engine(model, 64).generate(requests, PARAMS, bytes(32))
    few_rows = _engine(model, 4).generate(requests, PARAMS, bytes(32))
    engine = _engine(model, 64)
    alone = [completion for request in requests for completion in engine.generate([request], PARAMS, bytes(32))]
    # How many tokens an expert sees at once depends on all of them, and with it the last bits of its products.
    within = 1e-5 if name.endswith("_moe") else 0.0
    assert _same(together, few_rows, within)
    assert _same(together, alone, within)
    other_seed = engine.generate(requests, PARAMS, bytes([1]) * 32)
    assert not _same(together, other_seed)


def test_draws_are_those_of_the_own_engine_for_the_same_weights() -> None:
    """A Llama with biases in the MLP that are 0, and the same without."""
    torch.manual_seed(3)
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 96, "initializer_range": 0.3,
    }  # fmt: skip
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, mlp_bias=True))
    table = {**theirs.config.to_dict(), "architectures": ["LlamaForCausalLM"]}
    foreign = TorchEngine(ForeignConfig.from_hf(table), max_batch_rows=16)
    foreign.load_weights(theirs.state_dict(), 0)
    own = TorchEngine(ModelConfig.from_hf(table | {"mlp_bias": False}), max_batch_rows=16)
    own.load_weights({name: t for name, t in theirs.state_dict().items() if not name.endswith("bias")}, 0)
    requests = _requests([5, 9, 5, 2])
    ours, others = (engine.generate(requests, PARAMS, bytes(32)) for engine in (own, foreign))
    assert [completion.tokens.tolist() for completion in ours] == [c.tokens.tolist() for c in others]
    for one, other in zip(ours, others, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def test_new_weights_replace_everything_that_the_old_ones_made(models: dict[str, Any]) -> None:
    model = models["phi"][1]
    engine = _engine(model, 16)
    requests = _requests([5, 9])
    before = engine.generate(requests, PARAMS, bytes(32))
    changed = {key: tensor * 1.3 for key, tensor in model.state.items()}
    engine.load_weights(changed, 1)
    after = engine.generate(requests, PARAMS, bytes(32))
    fresh = TorchEngine(model.config, max_batch_rows=16)
    fresh.load_weights(changed, 1)
    assert _same(after, fresh.generate(requests, PARAMS, bytes(32)))
    assert not _same(before, after)


@pytest.mark.parametrize("name", RUNNABLE)
def test_live_requests_that_come_and_go_get_the_tokens_of_the_engine(name: str, models: dict[str, Any]) -> None:
    model = models[name][1]
    requests = _requests([5, 9, 5, 2], num_samples=1)
    decoder = build_decoder(model.config).requires_grad_(False)
    load_hf_state(decoder, model.state)
    live = LiveBatch(rows_of(decoder), max_rows=3, max_columns=64, reserved_token_ids=(0, 2))
    streams: dict[int, list[int]] = {}

    def step() -> None:
        for handle, token in live.step().items():
            streams.setdefault(handle, []).append(token.token)

    handles = []
    for request in requests:
        handles.append(
            live.add(
                LiveRequest(
                    prompt_tokens=request.prompt_tokens, max_tokens=14, temperature=0.8, draw_seed=bytes(32),
                    eos_token_ids=frozenset({EOS}),
                )
            )
        )  # fmt: skip
        step()
    dropped = live.add(
        LiveRequest(
            prompt_tokens=requests[0].prompt_tokens, max_tokens=9, temperature=0, draw_seed=bytes(32),
            eos_token_ids=frozenset(),
        )
    )  # fmt: skip
    step()
    live.cancel(dropped)
    while live.num_live or live.num_waiting:
        step()
    engine = _engine(model, 8)
    for handle, request in zip(handles, requests, strict=True):
        (expected,) = engine.generate(
            [GroupRequest(group=0, prompt_tokens=request.prompt_tokens, num_samples=1)], PARAMS, bytes(32)
        )
        assert streams[handle] == expected.tokens.tolist()
