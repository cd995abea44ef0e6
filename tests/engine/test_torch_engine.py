"""The engine against the trainer's own forward, against itself in other batches, and at its limits."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from farflung.engine.base import Cancelled, Completion, GroupRequest, SamplingParams
from farflung.engine.torch_engine import TorchEngine
from farflung.errors import OurFault, UserError
from farflung.model.config import ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.factory import random_state
from farflung.model.head import token_logprobs
from farflung.model.layout import SequenceLayout
from farflung.model.weights import load_hf_state
from farflung.proofs.draws import draw, gumbel_noise, position_keys
from farflung.slots.noise import row_keys
from farflung.wire.rollout import StopReason

SEED = bytes(range(32))
MULTI_HEAD = ModelConfig(
    vocab_size=40, hidden_size=32, intermediate_size=64, num_layers=2, num_heads=2, num_kv_heads=2, head_dim=16,
    max_position_embeddings=256,
)  # fmt: skip
GROUPED_QUERIES = ModelConfig(
    vocab_size=40, hidden_size=48, intermediate_size=64, num_layers=3, num_heads=6, num_kv_heads=2, head_dim=8,
    max_position_embeddings=256, tie_word_embeddings=True, qk_norm=True,
)  # fmt: skip
ONE_KEY_HEAD = ModelConfig(
    vocab_size=40, hidden_size=32, intermediate_size=64, num_layers=2, num_heads=4, num_kv_heads=1, head_dim=16,
    max_position_embeddings=256,
)  # fmt: skip


def engine_of(config: ModelConfig = MULTI_HEAD, *, max_batch_rows: int = 64, weights: int = 0) -> TorchEngine:
    engine = TorchEngine(config, max_batch_rows=max_batch_rows)
    engine.load_weights(random_state(config, weights, std=0.2), policy_version=weights)
    return engine


def some_requests(samples: Sequence[int], seed: int = 0, longest: int = 12) -> list[GroupRequest]:
    generator = np.random.default_rng(seed)
    return [
        GroupRequest(
            group=group,
            prompt_tokens=generator.integers(40, size=generator.integers(1, longest + 1)).astype(np.int32),
            num_samples=count,
        )
        for group, count in enumerate(samples)
    ]


def sampling(
    max_tokens: int = 24,
    *,
    temperature: float = 1.0,
    eos: tuple[int, ...] = (3, 5),
    reserved: tuple[int, ...] = (0, 39),
) -> SamplingParams:
    return SamplingParams(
        temperature=temperature, max_completion_tokens=max_tokens, eos_token_ids=eos, reserved_token_ids=reserved
    )


def rows_keep_their_bits() -> bool:
    """Whether this machine's matrix product gives a row the same bits whatever the number of rows (MKL does)."""
    weights, rows = torch.randn(64, 32), torch.randn(64, 32)
    products = [torch.nn.functional.linear(rows[:count], weights) for count in range(8, 65)]
    return all(torch.equal(product, products[-1][: len(product)]) for product in products)


def tokens_of(completions: Sequence[Completion]) -> list[list[int]]:
    return [completion.tokens.tolist() for completion in completions]


def trainer_view(
    config: ModelConfig, weights: int, requests: Sequence[GroupRequest], completions: Sequence[Completion]
) -> tuple[Decoder, torch.Tensor, list[slice]]:
    """The trainer's states for prompt + completion, and where each completion's predicting states lie."""
    decoder = Decoder(config)
    load_hf_state(decoder, random_state(config, weights, std=0.2))
    prompts = {request.group: request.prompt_tokens for request in requests}
    documents = [np.concatenate((prompts[c.group], c.tokens)) for c in completions]
    with torch.no_grad():
        hidden = decoder(
            torch.from_numpy(np.concatenate(documents)).long(), SequenceLayout.from_lengths([*map(len, documents)])
        )
    ends = np.cumsum([*map(len, documents)])
    spans = [slice(end - len(c.tokens) - 1, end - 1) for end, c in zip(ends, completions, strict=True)]
    return decoder, hidden, spans


@pytest.mark.parametrize("config", [MULTI_HEAD, GROUPED_QUERIES, ONE_KEY_HEAD])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_and_hidden_states_are_the_trainers(config: ModelConfig, temperature: float) -> None:
    """Case T2: the ratio is 1 at staleness 0, also at a temperature other than 1."""
    requests, params = some_requests([3, 2, 4, 1]), sampling(40, temperature=temperature)
    completions = engine_of(config, max_batch_rows=4).generate(requests, params, SEED, with_hidden=True)
    decoder, hidden, spans = trainer_view(config, 0, requests, completions)
    for completion, span in zip(completions, spans, strict=True):
        assert completion.hidden is not None
        np.testing.assert_allclose(completion.hidden, hidden[span].numpy(), atol=1e-5)
        logprobs, _ = token_logprobs(
            hidden[span],
            decoder.lm_head_weight,
            torch.from_numpy(completion.tokens).long(),
            temperature=temperature,
            reserved_token_ids=params.reserved_token_ids,
        )
        np.testing.assert_allclose(completion.logprobs, logprobs.detach().numpy(), atol=1e-5)


def test_every_token_is_the_seeded_draw_from_the_trainers_distribution() -> None:
    requests, params = some_requests([2, 2, 2]), sampling(30)
    completions = engine_of().generate(requests, params, SEED)
    decoder, hidden, spans = trainer_view(MULTI_HEAD, 0, requests, completions)
    keys = torch.from_numpy(row_keys(SEED, [(c.group, c.sample) for c in completions]))
    for completion, span, key in zip(completions, spans, keys, strict=True):
        logits = hidden[span] @ decoder.lm_head_weight.detach().T
        logits[:, [0, 39]] = -torch.inf
        positions = torch.arange(len(completion.tokens))
        drawn, _ = draw(logits, gumbel_noise(position_keys(key, positions), 40))
        assert drawn.tolist() == completion.tokens.tolist()


@pytest.mark.parametrize("config", [MULTI_HEAD, GROUPED_QUERIES])
@pytest.mark.parametrize("seed", range(6))
def test_tokens_do_not_depend_on_the_batch(config: ModelConfig, seed: int) -> None:
    """Another number of rows, another order, other groups beside them: the same tokens, logprobs to the last bit."""
    tolerance = 0.0 if rows_keep_their_bits() else 5e-6
    requests, params, draw_seed = some_requests([3, 1, 5, 2, 9, 1], seed), sampling(40), bytes([seed + 1]) * 32
    reference = engine_of(config, max_batch_rows=64).generate(requests, params, draw_seed)
    for max_batch_rows in (1, 2, 7, 16):
        completions = engine_of(config, max_batch_rows=max_batch_rows).generate(requests[::-1], params, draw_seed)
        assert tokens_of(completions) == tokens_of(reference)
        for completion, other in zip(completions, reference, strict=True):
            np.testing.assert_allclose(completion.logprobs, other.logprobs, rtol=0, atol=tolerance)
    alone = engine_of(config, max_batch_rows=3).generate([requests[4]], params, draw_seed)
    assert tokens_of(alone) == [c.tokens.tolist() for c in reference if c.group == 4]


def test_groups_longer_and_more_than_the_batch_come_back_in_order() -> None:
    requests = some_requests([20, 1, 1, 1, 13, 1])
    completions = engine_of(max_batch_rows=8).generate(requests[::-1], sampling(), SEED)
    assert [(c.group, c.sample) for c in completions] == [(r.group, s) for r in requests for s in range(r.num_samples)]


def test_samples_of_a_group_differ_and_another_seed_gives_others() -> None:
    engine, requests = engine_of(), some_requests([8])
    first = tokens_of(engine.generate(requests, sampling(), SEED))
    assert len({tuple(tokens) for tokens in first}) == 8
    assert first == tokens_of(engine.generate(requests, sampling(), SEED))
    assert first != tokens_of(engine.generate(requests, sampling(), b"another seed"))


def test_every_end_of_sequence_id_ends_and_reserved_ids_are_never_drawn() -> None:
    """Cases T1 (a list of ids is honoured), T17 and 56."""
    completions = engine_of().generate(some_requests([40] * 4), sampling(30), SEED)
    last = {c.tokens[-1].item() for c in completions if c.stop_reason is StopReason.EOS}
    assert last == {3, 5}
    for completion in completions:
        assert not set(completion.tokens[:-1].tolist()) & {3, 5}
        assert not set(completion.tokens.tolist()) & {0, 39}
        if completion.stop_reason is StopReason.LENGTH:
            assert len(completion.tokens) == 30
            assert completion.tokens[-1] not in (3, 5)
        assert len(completion.tokens) == len(completion.logprobs)
        assert completion.tokens.dtype == np.int32
        assert completion.logprobs.dtype == np.float32


def test_a_sink_is_given_every_state_in_order_while_nothing_is_kept() -> None:
    class Collected:
        def __init__(self) -> None:
            self.states: dict[tuple[int, int], list[torch.Tensor]] = {}

        def add(self, group: int, sample: int, states_TD: torch.Tensor) -> None:
            self.states.setdefault((group, sample), []).append(states_TD)

    asked, endless = some_requests([5, 5]), replace(sampling(100), eos_token_ids=())
    sink = Collected()
    made = engine_of(max_batch_rows=3).generate(asked, endless, SEED, sink=sink)
    kept = engine_of(max_batch_rows=3).generate(asked, endless, SEED, with_hidden=True)
    assert all(each.hidden is None for each in made)
    for each in kept:
        assert each.hidden is not None
        assert len(sink.states[each.group, each.sample]) > 1, "in portions"
        assert torch.equal(torch.cat(sink.states[each.group, each.sample]), torch.from_numpy(each.hidden))


def test_a_limit_of_one_token_works_with_hidden_states() -> None:
    """Case 57: one token, one state, no crash in whatever reads the proof."""
    requests = some_requests([5, 5])
    completions = engine_of(max_batch_rows=3).generate(requests, sampling(1), SEED, with_hidden=True)
    assert all(len(c.tokens) == 1 and c.hidden is not None and c.hidden.shape == (1, 32) for c in completions)
    longer = engine_of().generate(requests, sampling(9), SEED)
    assert [c.tokens[0] for c in completions] == [c.tokens[0] for c in longer]


def test_greedy_takes_the_most_likely_token() -> None:
    requests = some_requests([1, 1, 1])
    completions = engine_of().generate(requests, sampling(temperature=0), SEED)
    assert tokens_of(completions) == tokens_of(engine_of().generate(requests, sampling(temperature=0), b"other"))
    decoder, hidden, spans = trainer_view(MULTI_HEAD, 0, requests, completions)
    for completion, span in zip(completions, spans, strict=True):
        logits = hidden[span] @ decoder.lm_head_weight.detach().T
        logits[:, [0, 39]] = -torch.inf
        assert logits.argmax(-1).tolist() == completion.tokens.tolist()
        expected = torch.log_softmax(logits, -1).max(-1).values
        np.testing.assert_allclose(completion.logprobs, expected.numpy(), atol=1e-5)


def test_nothing_of_the_old_weights_survives_a_swap() -> None:
    """Case W1: after a swap, a warm engine equals a cold one to the last bit."""
    requests, params = some_requests([4, 4, 4]), sampling()
    warm = engine_of(weights=0)
    old = warm.generate(requests, params, SEED)
    warm.load_weights(random_state(MULTI_HEAD, 1, std=0.2), policy_version=1)
    assert warm.policy_version == 1
    new, cold = (engine.generate(requests, params, SEED) for engine in (warm, engine_of(weights=1)))
    assert tokens_of(new) == tokens_of(cold) != tokens_of(old)
    for a, b in zip(new, cold, strict=True):
        assert a.logprobs.tolist() == b.logprobs.tolist()


def test_weights_that_overflow_are_our_fault_and_leave_no_trace_in_the_cache() -> None:
    engine, requests = engine_of(), some_requests([2, 2])
    expected = tokens_of(engine.generate(requests, sampling(), SEED))
    broken = {name: tensor * torch.inf for name, tensor in random_state(MULTI_HEAD, 0, std=0.2).items()}
    engine.load_weights(broken, policy_version=1)
    with pytest.raises(OurFault, match="not finite"):
        engine.generate(requests, sampling(), SEED)
    engine.load_weights(random_state(MULTI_HEAD, 0, std=0.2), policy_version=2)
    assert tokens_of(engine.generate(requests, sampling(), SEED)) == expected


def test_weights_of_another_model_are_refused_and_the_old_ones_stay() -> None:
    engine = engine_of()
    with pytest.raises(UserError):
        engine.load_weights({"model.norm.weight": torch.ones(32)}, policy_version=1)
    assert engine.policy_version == 0


def test_long_prompts_of_different_lengths_share_a_batch() -> None:
    requests, params = some_requests([2] * 9, seed=5, longest=200), sampling(40, eos=())
    together = engine_of(max_batch_rows=18).generate(requests, params, SEED)
    one_by_one = [engine_of().generate([request], params, SEED) for request in requests]
    assert tokens_of(together) == tokens_of([c for completions in one_by_one for c in completions])


def test_a_long_row_that_ends_early_leaves_the_others_as_they_were() -> None:
    """The cache then shrinks to the columns of the rest, and the idle last row must not write beyond them."""
    prompts = [*(np.arange(length) + 6 for length in range(1, 8)), np.arange(200) % 40]
    requests = [GroupRequest(group=g, prompt_tokens=p.astype(np.int32), num_samples=1) for g, p in enumerate(prompts)]
    params = sampling(50)
    for seed in (bytes([number]) for number in range(1, 256)):
        together = engine_of().generate(requests, params, seed)
        if len(together[-1].tokens) < 5 and min(len(c.tokens) for c in together[:-1]) > 9:
            break
    else:
        pytest.fail("no seed lets the long row end first")
    one_by_one = [engine_of().generate([request], params, seed)[0] for request in requests]
    assert tokens_of(together) == tokens_of(one_by_one)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "complaint"),
    [
        ([], 4, "the prompt is empty"),
        ([1, 40], 4, "the vocabulary is 0 to 39"),
        ([-1], 4, "the vocabulary is 0 to 39"),
        ([1] * 200, 57, "the model has 256 positions"),
    ],
)
def test_a_prompt_that_cannot_run_whole_is_refused(prompt: list[int], max_tokens: int, complaint: str) -> None:
    request = GroupRequest(group=7, prompt_tokens=np.array(prompt, dtype=np.int32), num_samples=1)
    with pytest.raises(ValueError, match=f"group 7: .*{complaint}"):
        engine_of().generate([request], sampling(max_tokens), SEED)


def test_a_prompt_that_just_fits_runs_to_the_last_position() -> None:
    request = GroupRequest(group=0, prompt_tokens=np.ones(200, dtype=np.int32), num_samples=1)
    assert len(engine_of().generate([request], sampling(56, eos=()), SEED)[0].tokens) == 56


def test_requests_that_mean_nothing_are_refused() -> None:
    engine, request = engine_of(), some_requests([1])[0]
    with pytest.raises(ValueError, match="requested twice"):
        engine.generate([request, request], sampling(), SEED)
    with pytest.raises(ValueError, match="end-of-sequence ids"):
        engine.generate([request], sampling(eos=(40,)), SEED)
    with pytest.raises(ValueError, match="reserved ids"):
        engine.generate([request], sampling(reserved=(-1,)), SEED)
    with pytest.raises(ValueError, match="num_samples is 0"):
        engine.generate(some_requests([0]), sampling(), SEED)
    with pytest.raises(ValueError, match="no weights"):
        TorchEngine(MULTI_HEAD, max_batch_rows=1).generate([request], sampling(), SEED)
    assert engine.generate([], sampling(), SEED) == []


def test_a_stop_ends_the_call_between_two_steps_and_the_engine_stays_usable() -> None:
    steps: list[int] = []
    engine = TorchEngine(MULTI_HEAD, max_batch_rows=8, should_stop=lambda: steps.append(0) or len(steps) == 6)  # type: ignore[func-returns-value]
    engine.load_weights(random_state(MULTI_HEAD, 0, std=0.2), 0)
    requests, params = some_requests([8]), sampling(20, eos=())
    with pytest.raises(Cancelled):
        engine.generate(requests, params, SEED)
    assert engine.stats.num_tokens == 5 * 8
    assert tokens_of(engine.generate(requests, params, SEED)) == tokens_of(engine_of().generate(requests, params, SEED))


def test_stats_count_every_token_drawn() -> None:
    engine = engine_of(max_batch_rows=5)
    completions = engine.generate(some_requests([4, 4, 4]), sampling(), SEED)
    assert engine.stats.num_tokens == sum(len(c.tokens) for c in completions)
    assert engine.stats.busy_s > 0


def test_a_later_turn_goes_on_with_the_draws_of_its_sample() -> None:
    engine = engine_of()
    (prompt,) = some_requests([3])
    whole = engine.generate([prompt], sampling(eos=()), SEED)
    later = [
        GroupRequest(
            group=0,
            prompt_tokens=np.concatenate([prompt.prompt_tokens, completion.tokens[:7]]),
            num_samples=1,
            first_sample=completion.sample,
            first_position=7,
            max_tokens=5 + completion.sample,
        )
        for completion in whole
    ]
    found = engine.generate(later[::-1], sampling(eos=()), SEED)
    assert tokens_of(found) == [completion.tokens[7 : 12 + completion.sample].tolist() for completion in whole]
    assert {completion.stop_reason for completion in found} == {StopReason.LENGTH}


@pytest.mark.parametrize("max_batch_rows", [2, 64])
def test_samples_in_strides_and_limits_of_one_request_are_those_of_many(max_batch_rows: int) -> None:
    engine = engine_of(max_batch_rows=max_batch_rows)
    (prompt,) = some_requests([8])
    apart = [
        GroupRequest(group=0, prompt_tokens=prompt.prompt_tokens, num_samples=4, first_sample=first, sample_stride=2,
                     max_tokens=limit)
        for first, limit in ((0, 24), (1, 3))
    ]  # fmt: skip
    together = engine.generate([prompt], sampling(), SEED)
    found = engine.generate(apart, sampling(), SEED)
    assert [completion.sample for completion in found] == list(range(8))
    expected = [completion.tokens[: 3 if completion.sample % 2 else None].tolist() for completion in together]
    assert tokens_of(found) == expected


@pytest.mark.parametrize(("field", "value"), [("max_tokens", 25), ("max_tokens", -1)])
def test_a_request_asks_for_no_more_than_the_params_allow(field: str, value: int) -> None:
    (request,) = some_requests([1])
    with pytest.raises(ValueError, match="max_tokens"):
        engine_of().generate([replace(request, **{field: value})], sampling(), SEED)


def test_a_sample_that_two_requests_ask_for_is_refused() -> None:
    (request,) = some_requests([4])
    with pytest.raises(ValueError, match="requested twice"):
        engine_of().generate([request, replace(request, num_samples=1, first_sample=3)], sampling(), SEED)
