"""Small models from nothing."""

import pytest
import torch

from farflung.errors import UserError
from farflung.model.characters import character_tokenizer
from farflung.model.config import ModelConfig
from farflung.model.factory import random_state, tiny_config
from farflung.model.vocabulary import never_drawn
from farflung.model.weights import expected_shapes


def test_a_tiny_model_takes_its_ids_from_the_tokenizer() -> None:
    config = tiny_config(character_tokenizer("01>"))
    assert config == ModelConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=192,
        num_layers=2,
        num_heads=4,
        num_kv_heads=4,
        head_dim=16,
        max_position_embeddings=512,
        eos_token_ids=(1,),
        pad_token_id=0,
    )
    num_parameters = sum(torch.Size(shape).numel() for shape in expected_shapes(config).values())
    assert num_parameters == 115_008


@pytest.mark.parametrize("num_heads", [0, 5])
def test_heads_must_divide_the_hidden_size(num_heads: int) -> None:
    with pytest.raises(UserError, match="multiple of num_heads"):
        tiny_config(character_tokenizer("01"), num_heads=num_heads)


def test_random_weights_depend_on_the_seed_alone() -> None:
    config = tiny_config(character_tokenizer("01"), num_layers=1)
    torch.manual_seed(1)
    first = random_state(config, seed=5)
    torch.manual_seed(2)
    again, other = random_state(config, seed=5), random_state(config, seed=6)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])
    assert first["lm_head.weight"].std().item() == pytest.approx(0.02, rel=0.1)
    assert torch.equal(first["model.norm.weight"], torch.ones(64))


def test_rows_beyond_the_tokenizer_are_never_drawn_but_every_end_is() -> None:
    tokenizer = character_tokenizer("01", num_ids=6)
    config = tiny_config(tokenizer)
    wider = ModelConfig.from_hf(config.to_hf() | {"vocab_size": 8, "eos_token_id": [1, 7]})
    assert never_drawn(tokenizer, config) == (0, 2, 5)
    assert never_drawn(tokenizer, wider) == (0, 2, 5, 6)
