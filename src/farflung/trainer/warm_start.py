"""A few supervised steps on demonstrations, so that reinforcement learning starts from some success.

    loss = - mean over completion tokens of log p(token)

Stops as soon as held-out accuracy, of a mixture that of its weakest member, reaches its target. Does not know slots,
versions or the network.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from farflung.envs.base import Environment, strata_of
from farflung.errors import UserError
from farflung.evaluation.heldout import ChatTokenizer
from farflung.rl.batch import flatten
from farflung.rl.types import TrainingSample
from farflung.slots.strata import index_from_the_end
from farflung.trainer.config import WarmStartConfig
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
    tokenizer: ChatTokenizer,
    eos_token_id: int,
    config: WarmStartConfig,
    *,
    measure_accuracy: Callable[[], float],
    report: Report,
    should_stop: Callable[[], bool],
) -> float:
    """Train the masters on demonstrations of training tasks; the published policy follows at each measurement.

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
            _demonstration(environment, tokenizer, eos_token_id, draw)
            for draw in range(first, first + config.batch_size)
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


def _demonstration(environment: Environment, tokenizer: ChatTokenizer, eos_token_id: int, draw: int) -> TrainingSample:
    """Demonstration number `draw`, of training tasks from the last backwards: those that leases reach last."""
    targets = environment.target_lengths or (0,)
    index = index_from_the_end(strata_of(environment), environment.num_tasks, draw)
    task = environment.task("train", index, targets[draw % len(targets)])
    text = environment.demonstration(task, draw)
    if text is None:
        raise UserError(
            f"environment {environment.name} has no demonstrations: set trainer.warm_start.max_steps = 0 "
            "and start from a model that already solves some tasks"
        )
    prompt = tokenizer.encode_chat(task.messages)
    completion = [*tokenizer.encode(text), eos_token_id]
    return TrainingSample(
        tokens=np.array([*prompt, *completion], dtype=np.int32),
        num_prompt_tokens=len(prompt),
        behaviour_logprobs=np.zeros(len(completion), dtype=np.float32),
        advantages=np.ones(len(completion), dtype=np.float32),
        loss_mask=np.ones(len(completion), dtype=np.bool_),
        policy_version=0,
        slot=0,
        group=draw,
        sample=0,
    )


def _supervised_step(policy: PolicyBase, samples: Sequence[TrainingSample], optimizer: torch.optim.Optimizer) -> float:
    batch = flatten(samples).to(policy.device)
    logprobs_M, _ = batch_logprobs(policy.supervised, batch)
    loss = -logprobs_M.mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    policy.descend(optimizer, MAX_GRAD_NORM)
    return float(loss.detach())
