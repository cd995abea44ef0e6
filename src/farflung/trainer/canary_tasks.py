"""Which tasks the canary samples: the pool's own held-out ones, or those of a test set that the trainer names."""

from farflung.envs.base import Environment, graders_of
from farflung.envs.graders.registry import require_ready
from farflung.envs.named import named
from farflung.envs.registry import load_environment
from farflung.errors import UserError
from farflung.evaluation.heldout import ChatTokenizer, heldout_tasks
from farflung.trainer.config import TrainerConfig
from farflung.wire.pool import PoolSpec


def canary_environment(
    config: TrainerConfig, own: Environment, tokenizer: ChatTokenizer, pool: PoolSpec, max_context_tokens: int
) -> Environment:
    """The environment whose held-out tasks say how good a version is.

    Args:
        own: the pool's.
        max_context_tokens: of the model, prompt and completion together.

    Raises:
        UserError: the test set cannot be used, or some of its prompts are too long.
    """
    section = config.evaluation
    if not section.environment:
        return own
    if config.warm_start.max_steps and config.warm_start.target_accuracy < 1:
        raise UserError(
            f"trainer.evaluation.environment is {section.environment} and trainer.warm_start.target_accuracy is "
            f"{config.warm_start.target_accuracy}: a warm start ends by the accuracy on the pool's tasks; leave the "
            "environment out, or set the accuracy to 1, so that all trainer.warm_start.max_steps are taken"
        )
    environment = load_environment(section.environment, pool.environment.seed, section.environment_args)
    require_ready(graders_of(environment))
    most = max_context_tokens - pool.max_completion_tokens
    for task in heldout_tasks(environment, section.num_tasks):
        num_tokens = len(tokenizer.encode_chat(task.messages))
        if num_tokens > most:
            raise UserError(
                f"trainer.evaluation.environment is {section.environment}, whose task {task.task_id} has a prompt of "
                f"{num_tokens} tokens; the model has room for {most} beside pool.max_completion_tokens: lower that, or "
                "choose another test set"
            )
    return named(environment)
