"""Whether episodes of an environment can be sampled token by token with a model's tokenizer, by many, and be checked.

Asked once, when a pool is made. This module does not know models or engines.
"""

from typing import Protocol, runtime_checkable

from farflung.envs.base import Environment
from farflung.envs.episode import Episodic
from farflung.errors import UserError
from farflung.model.conversation import rewrites_history
from farflung.model.tokenizer import Tokenizer


@runtime_checkable
class DeclaresRepeats(Protocol):
    """An environment that says whether it answers the same on every machine and every time. Optional."""

    is_reproducible: bool
    """False: its observations or grades may differ from one replay to the next."""


def is_reproducible(environment: Environment) -> bool:
    """True unless it says otherwise."""
    return environment.is_reproducible if isinstance(environment, DeclaresRepeats) else True


def require_playable(environment: Environment, tokenizer: Tokenizer, *, is_replayed: bool = True) -> None:
    """Nothing for an environment of one turn.

    Args:
        is_replayed: validators play its episodes again.

    Raises:
        UserError: validators could not replay its episodes, or the chat template does not let a conversation grow.
    """
    if not isinstance(environment, Episodic):
        return
    name = environment.name
    if not 1 <= environment.num_agents <= environment.max_turns or environment.max_turn_tokens < 0:
        raise UserError(
            f"environment {name} has {environment.num_agents} agents, at most {environment.max_turns} turns and "
            f"{environment.max_turn_tokens} tokens a turn: each agent needs a turn, and no number is below 0"
        )
    if is_replayed and not is_reproducible(environment):
        raise UserError(
            f"environment {name} says that it does not answer the same every time: nobody could check its episodes; "
            "use it with run --local, or with tools that are reproducible"
        )
    if environment.max_turns > environment.num_agents and rewrites_history(tokenizer):
        raise UserError(
            f"the chat template of this model shows earlier turns otherwise than they were said (without what was "
            f"thought, say), so that episodes of {name} cannot go on token by token: give the model a template that "
            "keeps them"
        )
