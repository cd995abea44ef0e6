import math
from dataclasses import replace

import pytest
import torch

from farflung.rl.sequences import Sequences

INDEX = Sequences(sequence_N=torch.tensor([0, 0, 0, 1, 1]), num_sequences=2, num_loss_sequences=2)
VALUES = torch.tensor([1.0, 2.0, 3.0, 4.0, 6.0])
ALL = torch.ones(5, dtype=torch.bool)


def test_sums_means_and_their_way_back_by_hand() -> None:
    assert INDEX.sum(VALUES, ALL).tolist() == [6, 10]
    assert INDEX.mean(VALUES, ALL).tolist() == [2, 5]
    assert INDEX.spread(torch.tensor([6.0, 10.0])).tolist() == [6, 6, 6, 10, 10]


@pytest.mark.parametrize("junk", [math.nan, math.inf])
def test_masked_positions_do_not_count_whatever_they_hold(junk: float) -> None:
    values, mask = VALUES.clone(), torch.tensor([True, False, True, False, False])
    values[~mask] = junk
    assert INDEX.sum(values, mask).tolist() == [4, 0]
    assert INDEX.mean(values, mask).tolist() == [2, 0]


def test_what_is_no_index_is_refused() -> None:
    with pytest.raises(ValueError, match="of int64"):
        replace(INDEX, sequence_N=torch.zeros(5))
    with pytest.raises(ValueError, match="of int64"):
        replace(INDEX, sequence_N=torch.zeros(5, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="num_loss_sequences 0"):
        replace(INDEX, num_loss_sequences=0)
