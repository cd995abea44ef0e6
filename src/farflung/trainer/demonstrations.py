"""What an environment shows, as training samples: a worked completion, or a whole episode from each agent's view.

Does not know policies or optimizers.
"""

import numpy as np

from farflung.envs.base import Environment, strata_of
from farflung.envs.episode import DemonstratesTurns, Episodic
from farflung.envs.playing import Episode, EpisodeLimits, View
from farflung.errors import OurFault, UserError
from farflung.model.tokenizer import Tokenizer
from farflung.rl.types import TrainingSample
from farflung.slots.strata import index_from_the_end
from farflung.wire.task import Task


def demonstrate(
    environment: Environment, tokenizer: Tokenizer, limits: EpisodeLimits, eos_token_id: int, draw: int
) -> list[TrainingSample]:
    """Demonstration number `draw`, of training tasks from the last backwards: those that leases reach last.

    Raises:
        UserError: the environment has no demonstrations.
    """
    targets = environment.target_lengths or (0,)
    index = index_from_the_end(strata_of(environment), environment.num_tasks, draw)
    task = environment.task("train", index, targets[draw % len(targets)])
    if isinstance(environment, Episodic):
        views = _episode(
            environment, task, Episode(tokenizer, environment, task, limits), tokenizer, eos_token_id, draw
        )
        return [_sample(view, draw, agent) for agent, view in enumerate(views)]
    text = environment.demonstration(task, draw)
    if text is None:
        raise _nothing_to_show(environment)
    completion = np.array([*tokenizer.encode_said(text), eos_token_id], dtype=np.int32)
    view = View(
        prompt_tokens=np.array(tokenizer.encode_chat(task.messages), dtype=np.int32),
        completion_tokens=completion,
        spans=((0, len(completion)),),
    )
    return [_sample(view, draw, 0)]


def _episode(
    environment: Environment, task: Task, episode: Episode, tokenizer: Tokenizer, eos_token_id: int, draw: int
) -> tuple[View, ...]:
    """Every agent's view of an episode in which each turn is one to imitate."""
    while (pending := episode.pending) is not None:
        shown = None
        if isinstance(environment, DemonstratesTurns):
            shown = environment.demonstrate_turn(task, episode.turns, draw)
        if shown is None:
            raise _nothing_to_show(environment)
        episode.take([*tokenizer.encode_said(shown), eos_token_id][: pending.max_tokens])
    if episode.unplayable:
        raise OurFault(f"environment {environment.name} cannot play task {task.task_id}: {episode.unplayable}")
    return episode.views


def _nothing_to_show(environment: Environment) -> UserError:
    return UserError(
        f"environment {environment.name} has no demonstrations: set trainer.warm_start.max_steps = 0 "
        "and start from a model that already solves some tasks"
    )


def _sample(view: View, draw: int, agent: int) -> TrainingSample:
    """Only the turns are learned from."""
    num_tokens = len(view.completion_tokens)
    mask_T = np.zeros(num_tokens, dtype=np.bool_)
    for start, end in view.spans:
        mask_T[start:end] = True
    return TrainingSample(
        tokens=np.concatenate([view.prompt_tokens, view.completion_tokens]),
        num_prompt_tokens=len(view.prompt_tokens),
        behaviour_logprobs=np.zeros(num_tokens, dtype=np.float32),
        advantages=np.ones(num_tokens, dtype=np.float32),
        loss_mask=mask_T,
        policy_version=0,
        slot=0,
        group=draw,
        sample=agent,
    )
