"""Draws in torch: the bits of numpy's generator, the softmax's frequencies, and the rules for ties and greed."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.proofs import draws
from farflung.slots import noise

WORD = st.integers(-(2**31), 2**31 - 1)


@given(
    st.lists(st.tuples(WORD, WORD), min_size=1, max_size=5),
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5),
    st.integers(1, 300),
)
def test_torch_and_numpy_make_the_same_bits(rows: list[tuple[int, int]], positions: list[int], vocab_size: int) -> None:
    keys = np.array(rows, dtype=np.int32)
    at_positions = noise.position_keys(keys, np.array(positions))
    in_torch = draws.position_keys(torch.from_numpy(keys)[:, None], torch.tensor(positions)[None])
    assert np.array_equal(in_torch.numpy(), at_positions)
    bits = noise.noise_bits(at_positions.reshape(-1, 2), vocab_size)
    bits_in_torch = draws.noise_bits(in_torch.reshape(-1, 2), vocab_size)
    assert np.array_equal(bits_in_torch.numpy(), bits)
    assert np.array_equal(draws.uniforms(bits_in_torch).numpy(), noise.uniforms(bits))


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=64))
def test_torch_and_numpy_round_the_same_uniforms(bits: list[int]) -> None:
    array = np.array([*bits, 0, 2**31 - 1], dtype=np.int32)
    assert np.array_equal(draws.uniforms(torch.from_numpy(array)).numpy(), noise.uniforms(array))


def test_gumbel_noise_agrees_to_the_rounding_of_the_logarithm() -> None:
    keys = noise.row_keys(b"seed", [(0, sample) for sample in range(40)])
    in_numpy = noise.gumbel_noise(keys, 5_000)
    in_torch = draws.gumbel_noise(torch.from_numpy(keys), 5_000).numpy()
    np.testing.assert_allclose(in_torch, in_numpy, rtol=2e-6, atol=2e-6)


def test_noise_does_not_depend_on_how_rows_are_blocked() -> None:
    keys = torch.from_numpy(noise.row_keys(b"seed", [(0, sample) for sample in range(7)]))
    vocab_size = draws.CPU_BLOCK_ELEMENTS // 2  # two rows a block
    together = draws.gumbel_noise(keys, vocab_size)
    assert torch.equal(together, torch.cat([draws.gumbel_noise(key[None], vocab_size) for key in keys]))


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_draws_follow_the_softmax(seed: int) -> None:
    logits = torch.randn(12, generator=torch.Generator().manual_seed(seed)) * 2
    keys = torch.from_numpy(noise.row_keys(seed.to_bytes(4, "little"), [(0, sample) for sample in range(4_000)]))
    tokens, logprobs = draws.draw(logits.expand(4_000, 12), draws.gumbel_noise(keys, 12))
    expected = torch.softmax(logits, -1) * 4_000
    counts = torch.bincount(tokens, minlength=12)
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 60  # 11 degrees of freedom: exceeded by chance once in ten million
    assert torch.equal(logprobs, torch.log_softmax(logits, -1)[tokens])


def test_a_masked_id_is_never_drawn_and_the_others_share_its_mass() -> None:
    logits = torch.tensor([5.0, 0.0, -torch.inf, 1.0])
    keys = torch.from_numpy(noise.row_keys(b"seed", [(0, sample) for sample in range(2_000)]))
    tokens, logprobs = draws.draw(logits.expand(2_000, 4), draws.gumbel_noise(keys, 4))
    assert set(tokens.tolist()) == {0, 1, 3}
    rest = torch.log_softmax(torch.tensor([5.0, 0.0, 1.0]), -1)
    assert logprobs[tokens == 3].unique().item() == pytest.approx(rest[2].item())


def test_without_noise_the_most_likely_token_is_drawn_and_ties_go_to_the_lower_id() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0, 1.0], [3.0, 0.0, 0.0, 3.0]])
    tokens, logprobs = draws.draw(logits, None)
    assert tokens.tolist() == [1, 0]
    assert torch.equal(logprobs, torch.log_softmax(logits, -1)[[0, 1], [1, 0]])


def test_ties_between_scores_go_to_the_lower_id_in_a_large_vocabulary() -> None:
    logits = torch.zeros(3, 50_000)
    assert draws.draw(logits, torch.zeros(3, 50_000))[0].tolist() == [0, 0, 0]
    noise_at_ties = torch.zeros(1, 50_000)
    noise_at_ties[0, [17, 40_001]] = 1.0
    assert draws.draw(logits[:1], noise_at_ties)[0].tolist() == [17]


def test_a_row_is_drawn_the_same_alone_and_among_others_and_noise_goes_where_it_is_wanted() -> None:
    generator = torch.Generator().manual_seed(0)
    vocab_size = draws.CPU_BLOCK_ELEMENTS // 2 - 5  # two rows are a block
    logits = torch.randn(5, vocab_size, generator=generator)
    keys = torch.randint(-(2**31), 2**31 - 1, (5, 2), dtype=torch.int32, generator=generator)
    out = torch.empty(5, draws.padded(vocab_size))
    noise = draws.gumbel_noise(keys, vocab_size, out=out)
    assert noise.data_ptr() == out.data_ptr()
    tokens, logprobs = draws.draw(logits, noise)
    for row in range(5):
        alone = draws.draw(logits[row : row + 1], draws.gumbel_noise(keys[row : row + 1], vocab_size))
        assert (alone[0].item(), alone[1].item()) == (tokens[row].item(), logprobs[row].item())
    assert torch.equal(draws.draw(logits, None)[0], logits.argmax(-1))
