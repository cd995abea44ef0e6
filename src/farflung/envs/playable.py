"""Whether episodes of an environment can be sampled token by token with a model's tokenizer, by many, and be checked.

Asked once, when a pool is made. This module does not know models or engines.
"""

from farflung.envs.base import Environment, is_reproducible
from farflung.envs.episode import Episodic
from farflung.errors import UserError
from farflung.model.conversation import rewrites_history
from farflung.model.tokenizer import Tokenizer


def require_playable(environment: Environment, tokenizer: Tokenizer, *, is_replayed: bool = True) -> None:
    """Nothing for an environment of one turn that answers the same every time.

    Args:
        is_replayed: validators grade its completions, or play its episodes, again.

    Raises:
        UserError: validators could not come to the same grades, or the chat template does not let a conversation grow.
    """
    name = environment.name
    if is_replayed and not is_reproducible(environment):
        raise UserError(
            f"environment {name} says that it does not answer the same every time: nobody could check what is claimed "
            "of it; use it with run --local or farflung eval, or a form of it without judges, remote sandboxes and "
            "tools that differ from machine to machine"
        )
    if not isinstance(environment, Episodic):
        return
    if not 1 <= environment.num_agents <= environment.max_turns or environment.max_turn_tokens < 0:
        raise UserError(
            f"environment {name} has {environment.num_agents} agents, at most {environment.max_turns} turns and "
            f"{environment.max_turn_tokens} tokens a turn: each agent needs a turn, and no number is below 0"
        )
    if environment.max_turns > environment.num_agents and rewrites_history(tokenizer):
        raise UserError(
            f"the chat template of this model shows earlier turns otherwise than they were said (without what was "
            f"thought, say), so that episodes of {name} cannot go on token by token: give the model a template that "
            "keeps them"
        )
