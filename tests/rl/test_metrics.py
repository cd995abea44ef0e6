import pytest
import torch
from torch import Tensor

from farflung.rl.grpo import GrpoParams, grpo_loss
from farflung.rl.loss import LossInputs
from farflung.rl.metrics import NUM_TOKENS, combine_metrics, reduce_metrics


def metrics_of_shard(num_tokens: int, entropy: float, num_loss_tokens: int = 40) -> dict[str, Tensor]:
    inputs = LossInputs(
        trainer_logprobs_N=torch.full((num_tokens,), -1.0),
        behaviour_logprobs_N=torch.full((num_tokens,), -1.0),
        advantages_N=torch.ones(num_tokens),
        loss_mask_N=torch.ones(num_tokens, dtype=torch.bool),
        entropy_N=torch.full((num_tokens,), entropy),
    )
    return grpo_loss(inputs, GrpoParams(), num_loss_tokens).metrics


def test_shards_weigh_by_their_tokens() -> None:
    """Case L20: 10 tokens of entropy 1 and 30 of entropy 0 have a mean of 0.25."""
    metrics = reduce_metrics([metrics_of_shard(10, 1.0), metrics_of_shard(30, 0.0)])
    assert metrics["entropy"] == 0.25
    assert metrics["num_tokens"] == 40


def test_means_do_not_grow_with_the_number_of_shards() -> None:
    """Case L20."""
    whole = reduce_metrics([metrics_of_shard(40, 0.5)])
    quarters = reduce_metrics([metrics_of_shard(10, 0.5)] * 4)
    assert quarters == pytest.approx(whole)


def test_the_loss_adds_up_over_shards() -> None:
    metrics = reduce_metrics([metrics_of_shard(10, 0.0), metrics_of_shard(30, 0.0)])
    assert metrics["policy_loss"] == pytest.approx(-1.0)


def test_extremes_are_those_of_all_shards() -> None:
    names = ("sum/num_tokens", "max/x", "min/x")
    parts = [dict(zip(names, map(torch.tensor, values), strict=True)) for values in ([1, 2.0, -2.0], [1, -5.0, -7.0])]
    assert combine_metrics(parts) == {"sum/num_tokens": 2.0, "max/x": 2.0, "min/x": -7.0}


def test_combining_in_two_stages_changes_nothing() -> None:
    shards = [metrics_of_shard(count, count / 10) for count in (1, 2, 3, 4)]
    halves = [combine_metrics(half) for half in (shards[:2], shards[2:])]
    staged = reduce_metrics([{name: torch.tensor(value) for name, value in half.items()} for half in halves])
    assert staged == pytest.approx(reduce_metrics(shards))


@pytest.mark.parametrize("parts", [[], [{"sum/num_tokens": torch.tensor(1)}, {"sum/x": torch.tensor(1)}]])
def test_parts_must_exist_and_agree(parts: list[dict[str, Tensor]]) -> None:
    with pytest.raises(ValueError, match="at least one, all with the same names"):
        reduce_metrics(parts)


def test_a_step_without_tokens_has_no_metrics() -> None:
    with pytest.raises(ValueError, match="nothing to average over"):
        reduce_metrics([{"sum/num_tokens": torch.tensor(0)}])


def test_metrics_of_micro_batches_weigh_tokens_and_weights_have_an_effective_size() -> None:
    """Case L20: shards of 10 and 30 tokens with entropies 1 and 0 give 0.25; w = 2 on 10 tokens and 1 on 30."""
    weights = ("sampling/importance_sampling_ratio/mean", "sampling/importance_sampling_ratio/squared_mean")
    parts = [
        {NUM_TOKENS: torch.tensor(n), "sum/entropy": torch.tensor(h * n)}
        | {f"sum/{name}": torch.tensor(float(n * w**power)) for power, name in enumerate(weights, start=1)}
        for n, h, w in ((10, 1.0, 2.0), (30, 0.0, 1.0))
    ]
    metrics = reduce_metrics(parts)
    assert metrics["entropy"] == 0.25
    assert metrics["sampling/importance_sampling_ratio/effective_share"] == pytest.approx(50**2 / (40 * 70))
    assert reduce_metrics(parts * 3)["entropy"] == 0.25
    assert "sampling/importance_sampling_ratio/squared_mean" not in metrics
