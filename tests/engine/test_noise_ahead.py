"""Noise made in blocks is the noise of each row's own cells, whoever joins or moves in between."""

import torch
from torch import Tensor

from farflung.engine.noise_ahead import MAX_BLOCK_STEPS, NoiseAhead
from farflung.proofs.draws import gumbel_noise


def keys_of(num_cells: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(-(2**31), 2**31 - 1, (num_cells, 2), dtype=torch.int32, generator=generator)


def test_every_step_hands_out_the_noise_of_the_current_cells() -> None:
    keys = keys_of(100)
    ahead = NoiseAhead(keys, num_rows=3, vocab_size=50)
    cells = torch.tensor([0, 40, 79])
    for step in range(2 * MAX_BLOCK_STEPS + 3):  # the last row runs beyond the last cell in its last block
        assert torch.equal(ahead.take(cells + step), gumbel_noise(keys[cells + step], 50))


def test_rows_that_join_and_move_inside_a_block_bring_their_noise_along() -> None:
    keys = keys_of(100)
    ahead = NoiseAhead(keys, num_rows=4, vocab_size=50)
    cells = torch.tensor([10, 20, 30])
    for _ in range(3):
        ahead.take(cells)
        cells = cells + 1
    cells = torch.cat((cells, torch.tensor([60])))
    ahead.join(3, cells[3:])
    assert torch.equal(ahead.take(cells), gumbel_noise(keys[cells], 50))
    cells = cells[[0, 3, 2]] + 1  # row 1 ended, row 3 took its place
    ahead.move(torch.tensor([1]), torch.tensor([3]))
    for _ in range(MAX_BLOCK_STEPS):
        assert torch.equal(ahead.take(cells), gumbel_noise(keys[cells], 50))
        cells = cells + 1


def test_a_large_vocabulary_is_drawn_step_by_step() -> None:
    keys = keys_of(8)
    ahead = NoiseAhead(keys, num_rows=2, vocab_size=50_000)
    for step in range(3):
        cells = torch.tensor([0, 4]) + step
        assert torch.equal(ahead.take(cells), gumbel_noise(keys[cells], 50_000))
