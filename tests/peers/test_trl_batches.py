"""From rewards to advantages and masks, and a whole training step, ours beside TRL's."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

import trl_losses as peer
from farflung.model.weights import state_to_hf
from farflung.rl.dapo import DapoParams, dapo_loss
from farflung.rl.estimators import Estimator
from farflung.rl.grpo import GrpoParams, grpo_loss
from farflung.rl.objectives import Objective
from farflung.rl.samples import training_samples
from farflung.rl.types import RolloutGroup, TrainingSample
from farflung.trainer.config import OptimizerConfig
from farflung.trainer.policy import Policy
from farflung.trainer.step import StepParams, train_step
from farflung.wire.rollout import Rollout, StopReason

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed: `make test-peer` installs it"),
    pytest.mark.filterwarnings("ignore"),
]

REWARDS = [1.0, 0.0, 0.0, 0.25, 1.0, 1.0, 1.0, 0.5]
DIGIT, EOS = 5, 1


def groups(given: peer.Tokens, rewards: list[float | None], ends: list[bool] | None = None) -> list[RolloutGroup]:
    """Two groups of four with the lengths of `given`."""
    rollouts = [
        Rollout(
            env="sort-digits",
            task_id=str(row // 4),
            group=row // 4,
            sample=row % 4,
            prompt_tokens=np.full(peer.PROMPT_TOKENS, 3, dtype=np.int32),
            completion_tokens=np.full(int(given.mask[row].sum()), DIGIT, dtype=np.int32),
            logprobs=given.old[row][given.mask[row]].numpy(),
            stop_reason=StopReason.EOS if ends is None or ends[row] else StopReason.LENGTH,
            policy_version=0,
        )
        for row in range(8)
    ]
    return [
        RolloutGroup(
            slot=0,
            group=group,
            task_id=str(group),
            rollouts=tuple(rollouts[4 * group : 4 * group + 4]),
            rewards=tuple(rewards[4 * group : 4 * group + 4]),
            correct=tuple(rewards[4 * group : 4 * group + 4]),
        )
        for group in range(2)
    ]


@pytest.mark.parametrize(("scale", "normalize"), [("group", "std"), ("batch", "batch_std"), ("none", "none")])
@pytest.mark.parametrize("rewards", [REWARDS, [1.0, 0.0, None, 0.25, 1.0, 1.0, 1.0, 0.5]])
def test_advantages_agree(scale: str, normalize: Estimator, rewards: list[float | None]) -> None:
    """A rollout without a reward: advantage 0 at TRL, no sample at all here; neither counts it in mean or std."""
    given = peer.tokens()
    theirs = peer.rollout_batch(peer.trainer(scale_rewards=scale), given, rewards=rewards)["advantages"]
    ours = {
        (s.group, s.sample): float(s.advantages[0])
        for s in training_samples(groups(given, rewards), normalize=normalize)
    }
    aligned = [ours.get((row // 4, row % 4), 0.0) for row in range(8)]
    assert theirs.tolist() == pytest.approx(aligned, abs=1e-6)


def test_truncated_completions_leave_the_loss_and_keep_their_place_in_the_mean() -> None:
    given = peer.tokens()
    ends = [True, False, True, True, False, True, True, False]
    tokens = torch.full(given.mask.shape, DIGIT)
    for row, end in enumerate(ends):
        if end:
            tokens[row, int(given.mask[row].sum()) - 1] = EOS
    batch = peer.rollout_batch(peer.trainer(mask_truncated_completions=True), given, rewards=[*REWARDS], tokens=tokens)
    samples = training_samples(groups(given, [*REWARDS], ends), mask_truncated=True, normalize="std")
    kept = batch["completion_mask"].any(dim=1).nonzero().flatten().tolist()
    assert [4 * sample.group + sample.sample for sample in samples] == kept == [r for r in range(8) if ends[r]]
    assert int(batch["num_items_in_batch"]) == sum(sample.num_loss_tokens for sample in samples)
    made = peer.trainer(scale_rewards="group")
    advantages = peer.rollout_batch(made, given, rewards=[*REWARDS])["advantages"]
    assert [float(sample.advantages[0]) for sample in samples] == pytest.approx(advantages[kept].tolist(), abs=1e-6)


def test_a_group_without_signal_costs_trl_tokens_in_the_mean_and_us_none() -> None:
    """dapo, second group all equal: TRL divides by N of both groups, ours by N of the first: TRL = ours * N1 / N."""
    given = peer.tokens()
    given.advantages_B[4:] = 0.0
    trl = peer.loss(peer.trainer(loss_type="dapo", epsilon_high=0.28), given)
    first = peer.rows(given, slice(0, 4))
    ours = peer.ours(Objective(function=dapo_loss, params=DapoParams()), first)
    share = first.num_loss_tokens / given.num_loss_tokens
    assert trl[0] == pytest.approx(share * ours[0], abs=1e-6)
    torch.testing.assert_close(trl[1][:4, : first.mask.shape[1]], share * ours[1], rtol=1e-5, atol=1e-6)
    assert not trl[1][4:].any()


def test_one_step_of_the_whole_model_moves_every_weight_alike() -> None:
    """Same weights, tokens and AdamW: our padding-free decoder beside the padded Llama, with a real backward pass."""
    made = peer.trainer(loss_type="dapo", epsilon_high=0.28, delta=4.0, learning_rate=1e-3)
    given = peer.tokens(mismatch=0.0)
    optimizer = OptimizerConfig(lr=1e-3)
    state = {name: tensor.to(torch.bfloat16).float() for name, tensor in _state(made).items()}
    made.model.load_state_dict(state)
    samples = _samples(given)
    policy = Policy(peer.description().config, state, optimizer)
    params = StepParams(
        objective=Objective(function=grpo_loss, params=GrpoParams(anchor="behaviour")),
        temperature=1.0,
        reserved_token_ids=(),
        micro_batch_tokens=4096,
        max_grad_norm=1e9,
    )
    gradients: dict[str, torch.Tensor] = {}

    def keep_gradient(lr: float, max_grad_norm: float) -> float:
        for published, master in zip(policy.published.parameters(), policy.masters.parameters(), strict=True):
            master.data = published.grad
        gradients.update(state_to_hf(policy.masters))
        return 0.0

    policy.apply_gradient = keep_gradient  # type: ignore[method-assign]
    train_step(policy, samples, params, lr=1e-3)
    made._compute_loss(made.model, _trl_inputs(samples)).backward()
    for name, parameter in made.model.named_parameters():
        torch.testing.assert_close(
            parameter.grad, gradients[name], rtol=1e-4, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


def _state(made: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in made.model.state_dict().items()}


def _samples(given: peer.Tokens) -> list[TrainingSample]:
    generator = np.random.default_rng(0)
    return [
        TrainingSample(
            tokens=generator.integers(3, 14, size=peer.PROMPT_TOKENS + int(row.sum())).astype(np.int32),
            num_prompt_tokens=peer.PROMPT_TOKENS,
            behaviour_logprobs=np.zeros(int(row.sum()), dtype=np.float32) - 2.5,
            advantages=np.full(int(row.sum()), advantage, dtype=np.float32),
            loss_mask=np.ones(int(row.sum()), dtype=np.bool_),
            policy_version=0,
            slot=0,
            group=0,
            sample=index,
        )
        for index, (row, advantage) in enumerate(zip(given.mask, given.advantages_B, strict=True))
    ]


def _trl_inputs(samples: list[TrainingSample]) -> dict[str, torch.Tensor]:
    pad = torch.nn.utils.rnn.pad_sequence

    def rows(values: list[Any]) -> torch.Tensor:
        return pad([torch.as_tensor(value) for value in values], batch_first=True)

    prompt = peer.PROMPT_TOKENS
    return {
        "prompt_ids": rows([sample.tokens[:prompt] for sample in samples]).long(),
        "prompt_mask": torch.ones(len(samples), prompt, dtype=torch.long),
        "completion_ids": rows([sample.tokens[prompt:] for sample in samples]).long(),
        "completion_mask": rows([sample.loss_mask for sample in samples]).long(),
        "advantages": torch.tensor([float(sample.advantages[0]) for sample in samples]),
        "old_per_token_logps": rows([sample.behaviour_logprobs for sample in samples]),
        "num_items_in_batch": torch.tensor(sum(sample.num_loss_tokens for sample in samples)),
    }
