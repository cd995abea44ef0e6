"""How many versions back a worker can be before its states give it away, at a learning rate.

Versions are real: AdamW steps of the default objective on float32 masters, published in bfloat16. Advantages are random
signs, drawn anew for every step, since the size of a step does not depend on what it is good for. The worker samples
with version 0 and claims version 1, 2, 4, ... of the same chain.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from farflung.engine.base import Completion
from farflung.rl.types import TrainingSample
from farflung.trainer.config import ObjectiveConfig, OptimizerConfig
from farflung.trainer.objective import make_objective
from farflung.trainer.policy import Policy
from farflung.trainer.step import StepParams, train_step
from farflung.validator.calibrate import Bench
from farflung.wire.proof import RolloutFigures

LAGS = (1, 2, 4, 8, 16, 32)
LEARNED_GROUPS = 2
"""Of the sampled groups: enough for a gradient, and cheap."""


def measured(
    bench: Bench, lr: float, lags: Sequence[int] = LAGS
) -> Iterator[tuple[int, list[tuple[RolloutFigures, ...]]]]:
    """(versions back, figures of each submission beside the claimed version), in order."""
    optimizer = OptimizerConfig(lr=lr, warmup_steps=0)
    policy = Policy(bench.config, bench.state, optimizer)
    old = replace(bench, state=policy.published_state())
    made = old.sampled()
    rows = old.rows(made)
    params = StepParams(
        objective=make_objective(ObjectiveConfig(), max_length_tokens=bench.params.max_completion_tokens),
        temperature=bench.params.temperature,
        reserved_token_ids=bench.params.reserved_token_ids,
        micro_batch_tokens=2048,
        max_grad_norm=optimizer.max_grad_norm,
    )
    generator = np.random.default_rng(0)
    for step in range(1, max(lags) + 1):
        train_step(policy, _samples(bench, made, generator), params, lr)
        if step in lags:
            yield step, replace(bench, state=_copied(policy.published_state())).examined(rows)


def _samples(bench: Bench, made: Sequence[Completion], generator: np.random.Generator) -> list[TrainingSample]:
    samples = []
    for each in made:
        if each.group < LEARNED_GROUPS:
            advantage = generator.choice((-1.0, 1.0))
            samples.append(
                TrainingSample(
                    tokens=np.concatenate((np.array(bench.prompts[each.group], np.int32), each.tokens)),
                    num_prompt_tokens=len(bench.prompts[each.group]),
                    behaviour_logprobs=each.logprobs,
                    advantages=np.full(len(each.tokens), advantage, np.float32),
                    loss_mask=np.ones(len(each.tokens), np.bool_),
                    policy_version=0,
                    slot=0,
                    group=each.group,
                    sample=each.sample,
                )
            )
    return samples


def _copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.clone() for name, weight in state.items()}
