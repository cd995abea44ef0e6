"""The fake keeps the promises that callers' tests rely on."""

from dataclasses import replace

import numpy as np
import pytest

from farflung.engine.base import Cancelled, GroupRequest, SamplingParams
from farflung.engine.fake import FakeEngine
from farflung.wire.rollout import StopReason

SEED = b"seed"


def request(group: int = 0, prompt: tuple[int, ...] = (1, 2), num_samples: int = 4) -> GroupRequest:
    return GroupRequest(group=group, prompt_tokens=np.array(prompt, dtype=np.int32), num_samples=num_samples)


def params(max_tokens: int = 6, eos: tuple[int, ...] = (), reserved: tuple[int, ...] = ()) -> SamplingParams:
    return SamplingParams(max_completion_tokens=max_tokens, eos_token_ids=eos, reserved_token_ids=reserved)


def test_tokens_are_uniform_over_the_unreserved_ids_with_exact_logprobs() -> None:
    completions = FakeEngine(10).generate([request(num_samples=500)], params(20, reserved=(0, 7)), SEED)
    tokens = np.concatenate([completion.tokens for completion in completions])
    counts = np.bincount(tokens, minlength=10)
    assert counts[[0, 7]].tolist() == [0, 0]
    assert counts[counts > 0].min() > 1_100  # 1,250 expected
    assert {float(value) for completion in completions for value in completion.logprobs} == {
        float(np.float32(-np.log(8)))
    }


def test_draws_depend_on_group_sample_and_seed_only() -> None:
    engine = FakeEngine(50)
    alone = engine.generate([request(3)], params(), SEED)
    among = [c for c in engine.generate([request(4), request(3, prompt=(9,))], params(), SEED) if c.group == 3]
    assert [c.tokens.tolist() for c in alone] == [c.tokens.tolist() for c in among]
    assert [c.tokens.tolist() for c in alone] != [
        c.tokens.tolist() for c in engine.generate([request(3)], params(), b"x")
    ]
    assert [(c.group, c.sample) for c in alone] == [(3, sample) for sample in range(4)]


def test_a_later_turn_goes_on_with_the_draws_of_its_sample() -> None:
    engine = FakeEngine(50)
    whole = engine.generate([request(3)], params(10), SEED)
    later = replace(request(3, num_samples=2), first_sample=1, sample_stride=2, first_position=4, max_tokens=5)
    found = engine.generate([later], params(10), SEED)
    assert [(c.sample, c.tokens.tolist()) for c in found] == [(n, whole[n].tokens[4:9].tolist()) for n in (1, 3)]


def test_a_script_gives_a_prompts_completion_cut_at_the_end_of_sequence() -> None:
    engine = FakeEngine(10, script=lambda prompt: [*prompt[::-1], 9, 5] if prompt[0] == 1 else None)
    scripted = engine.generate([request()], params(eos=(9,)), SEED)[0]
    assert scripted.tokens.tolist() == [2, 1, 9]
    assert scripted.stop_reason is StopReason.EOS
    cut = engine.generate([request()], params(2, eos=(9,)), SEED)[0]
    assert cut.tokens.tolist() == [2, 1]
    assert cut.stop_reason is StopReason.LENGTH
    assert len(engine.generate([request(prompt=(3,))], params(), SEED)[0].tokens) == 6


def test_hidden_states_come_on_request_one_row_a_token() -> None:
    engine = FakeEngine(10, hidden_size=3)
    assert engine.generate([request()], params(), SEED)[0].hidden is None
    completion = engine.generate([request()], params(), SEED, with_hidden=True)[0]
    assert completion.hidden is not None
    assert completion.hidden.shape == (6, 3)
    assert completion.hidden[:, 0].tolist() == completion.tokens.tolist()


def test_greedy_versions_stats_and_cancellation() -> None:
    engine = FakeEngine(10, should_stop=lambda: engine.policy_version == 2)
    assert engine.policy_version == -1
    engine.load_weights({}, 1)
    greedy = SamplingParams(temperature=0, max_completion_tokens=3, eos_token_ids=(), reserved_token_ids=(0,))
    assert engine.generate([request(num_samples=1)], greedy, SEED)[0].tokens.tolist() == [1, 1, 1]
    assert engine.stats.num_tokens == 3
    engine.load_weights({}, 2)
    with pytest.raises(Cancelled):
        engine.generate([request()], params(), SEED)
