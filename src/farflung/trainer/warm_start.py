"""A few supervised steps on demonstrations, so that reinforcement learning starts from some success.

    loss = - mean over demonstrated tokens of log p(token)

Episodes are demonstrated whole, turn by turn, and each agent's view of one is a sample. Stops as soon as held-out
accuracy, of a mixture that of its weakest member, reaches its target. Does not know slots, versions or the network.
"""

from collections.abc import Callable, Sequence

import torch

from farflung.envs.base import Environment
from farflung.envs.playing import EpisodeLimits
from farflung.model.tokenizer import Tokenizer
from farflung.rl.batch import flatten
from farflung.rl.types import TrainingSample
from farflung.trainer.config import WarmStartConfig
from farflung.trainer.demonstrations import demonstrate
from farflung.trainer.forward import batch_logprobs
from farflung.trainer.policy_base import PolicyBase
from farflung.trainer.schedule import Schedule

BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.01
MAX_GRAD_NORM = 1.0

Report = Callable[[int, float, float], None]
"""(step, loss, accuracy), after each measurement."""


def warm_start(
    policy: PolicyBase,
    environment: Environment,
    tokenizer: Tokenizer,
    limits: EpisodeLimits,
    eos_token_id: int,
    config: WarmStartConfig,
    *,
    measure_accuracy: Callable[[], float],
    report: Report,
    should_stop: Callable[[], bool],
) -> float:
    """Train the masters on demonstrations of training tasks; the published policy follows at each measurement.

    Args:
        limits: of episodes.

    Returns:
        The last measured accuracy.

    Raises:
        UserError: the environment has no demonstrations.
    """
    optimizer = torch.optim.AdamW(policy.master_parameters().values(), betas=BETAS, weight_decay=WEIGHT_DECAY)
    schedule = Schedule(shape="constant", lr=config.lr, warmup_steps=config.warmup_steps, total_steps=config.max_steps)
    accuracy = 0.0
    for step in range(config.max_steps):
        first = step * config.batch_size
        samples = [
            sample
            for draw in range(first, first + config.batch_size)
            for sample in demonstrate(environment, tokenizer, limits, eos_token_id, draw)
        ]
        for group in optimizer.param_groups:
            group["lr"] = schedule.at(step)
        loss = _supervised_step(policy, samples, optimizer)
        if (step + 1) % config.eval_every_steps == 0 or step + 1 == config.max_steps:
            policy.round_masters()
            accuracy = measure_accuracy()
            report(step + 1, loss, accuracy)
            if accuracy >= config.target_accuracy or should_stop():
                break
    return accuracy


def _supervised_step(policy: PolicyBase, samples: Sequence[TrainingSample], optimizer: torch.optim.Optimizer) -> float:
    batch = flatten(samples).to(policy.device)
    logprobs_M, _ = batch_logprobs(policy.supervised, batch)
    loss = -(logprobs_M if bool(batch.loss_mask_M.all()) else logprobs_M[batch.loss_mask_M]).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    policy.descend(optimizer, MAX_GRAD_NORM)
    return float(loss.detach())
