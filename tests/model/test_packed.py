"""Packed weights multiply as plain ones do, and a row's result does not depend on its company."""

import pytest
import torch

from farflung.errors import UserError
from farflung.model.config import ModelConfig
from farflung.model.decoder import Decoder
from farflung.model.factory import random_state
from farflung.model.head import next_token_logits, vocabulary_mask
from farflung.model.layout import SequenceLayout
from farflung.model.packed import MIN_ELEMENTS, can_pack, linear, pack
from farflung.model.weights import load_hf_state

WIDE = ModelConfig(
    vocab_size=1024, hidden_size=256, intermediate_size=768, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=64,
    max_position_embeddings=128, attention_bias=True, tie_word_embeddings=True,
)  # fmt: skip

needs_packing = pytest.mark.skipif(
    not can_pack(torch.zeros(1024, 256)), reason="this processor or build of torch multiplies plain matrices only"
)


def packing_decoder(config: ModelConfig = WIDE, *, seed: int = 0) -> Decoder:
    decoder = Decoder(config).requires_grad_(requires_grad=False)
    decoder.packs_weights = True
    load_hf_state(decoder, random_state(config, seed, std=0.05))
    return decoder


def plain_decoder(config: ModelConfig = WIDE, *, seed: int = 0) -> Decoder:
    decoder = Decoder(config).requires_grad_(requires_grad=False)
    load_hf_state(decoder, random_state(config, seed, std=0.05))
    return decoder


def states_of(decoder: Decoder) -> torch.Tensor:
    tokens = torch.randint(decoder.config.vocab_size, (40,), generator=torch.Generator().manual_seed(1))
    states: torch.Tensor = decoder(tokens, SequenceLayout.from_lengths([30, 10]))
    return states


@needs_packing
@pytest.mark.parametrize(("num_out", "num_in"), [(960, 576), (576, 1536), (1152, 896), (640, 2048), (4099, 333)])
def test_a_row_keeps_its_bits_whatever_the_number_of_rows(num_out: int, num_in: int) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, rows = torch.randn(num_out, num_in, generator=generator), torch.randn(256, num_in, generator=generator)
    packed, bias = pack(weight), torch.randn(num_out, generator=generator)
    whole = linear(rows, packed, bias)
    for count in (4, 5, 7, 8, 11, 16, 31, 33, 64, 100, 255):
        assert torch.equal(linear(rows[:count].clone(), packed, bias), whole[:count]), count
    torch.testing.assert_close(whole, linear(rows, weight, bias), rtol=0, atol=4e-4)


@needs_packing
def test_a_decoder_that_packs_gives_the_plain_decoders_states_and_logits() -> None:
    packing, plain = packing_decoder(), plain_decoder()
    assert packing.lm_head_weight.is_mkldnn
    torch.testing.assert_close(states_of(packing), states_of(plain), rtol=0, atol=1e-5)
    mask = vocabulary_mask(WIDE.vocab_size, [3, 1000])
    ours, theirs = (
        next_token_logits(states_of(plain), decoder.lm_head_weight, temperature=0.7, mask_V=mask)
        for decoder in (packing, plain)
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    assert ours[:, 1000].max() == -torch.inf


@needs_packing
def test_weights_that_are_loaded_later_are_packed_anew_and_refused_ones_change_nothing() -> None:
    decoder = packing_decoder()
    before = states_of(decoder)
    with pytest.raises(UserError, match="missing"):
        load_hf_state(decoder, {})
    assert torch.equal(states_of(decoder), before)
    load_hf_state(decoder, random_state(WIDE, 5, std=0.05))
    torch.testing.assert_close(states_of(decoder), states_of(plain_decoder(seed=5)), rtol=0, atol=1e-5)


@needs_packing
def test_a_packed_projection_keeps_no_second_copy_that_could_be_read() -> None:
    projection = packing_decoder().layers[0].up_proj
    assert projection.weight.untyped_storage().nbytes() == 4
    assert projection.weight.isnan().all()
    assert projection.weight.shape == (768, 256)


def test_small_matrices_and_other_precisions_stay_as_they_are() -> None:
    assert not can_pack(torch.zeros(MIN_ELEMENTS // 64 - 1, 64))
    assert not can_pack(torch.zeros(1024, 1024, dtype=torch.float64))
    assert not can_pack(torch.zeros(1024, 1024, device="meta"))
