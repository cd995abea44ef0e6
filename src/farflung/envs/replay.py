"""Whether claimed tokens are an episode that the environment would have played so.

The environment is asked anew with the claimed turns. What lies between them must be what it would have said, a turn
must end in an end-of-sequence id or at its limit, and the rows may neither stop while somebody is asked nor go on after
the end. A replay of what was played is the same episode: every id is compared, or taken into it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farflung.envs.playing import Episode, Pending


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Claim:
    """One agent's row."""

    prompt_tokens: NDArray[np.int32]
    completion_tokens: NDArray[np.int32]


def replay(episode: Episode, claims: Sequence[Claim], ends: Sequence[int], never_drawn: Sequence[int] = ()) -> str:
    """What is wrong with the claims, in words; empty when they are an episode, which `episode` then is.

    Args:
        episode: at its beginning.
        claims: [agents] ids that the tokenizer may not know do no harm.
        ends: end-of-sequence ids.
        never_drawn: ids that no turn may have.
    """
    num_read = [0] * len(claims)
    while (pending := episode.pending) is not None:
        claim, agent = claims[pending.agent], pending.agent
        if problem := _wrong_context(claim, pending, num_read[agent]):
            return f"agent {agent}: {problem}"
        turn = _turn(claim.completion_tokens[pending.first_position :], pending.max_tokens, ends)
        if turn[-1] not in ends and len(turn) < pending.max_tokens:
            return f"agent {agent}: a turn of {len(turn)} tokens ends neither in an end-of-sequence id nor at its limit"
        if (drawn := np.isin(turn, never_drawn)).any():
            return f"agent {agent}: token {turn[drawn][0]} of a turn is reserved"
        episode.take(turn.tolist())
        num_read[agent] = pending.first_position + len(turn)
    if episode.unplayable:
        return episode.unplayable
    for agent, (claim, count) in enumerate(zip(claims, num_read, strict=True)):
        if len(claim.completion_tokens) > count:
            return f"agent {agent}: goes on after {count} tokens, where the episode ended ({episode.ending})"
    return ""


def _wrong_context(claim: Claim, pending: Pending, num_read: int) -> str:
    """Compares what stands before the turn and was not compared yet."""
    completion, first = claim.completion_tokens, pending.first_position
    num_prompt = len(pending.tokens) - first
    if not num_read and not np.array_equal(claim.prompt_tokens, pending.tokens[:num_prompt]):
        return f"prompt of {len(claim.prompt_tokens)} tokens is not the canonical one of {num_prompt}"
    told = pending.tokens[num_prompt + num_read :]
    if not np.array_equal(completion[num_read:first], told[: max(0, len(completion) - num_read)]):
        return f"tokens {num_read} to {first} are not what the environment says there"
    if len(completion) <= first:
        return f"stops after {len(completion)} tokens, where it is asked for a turn"
    return ""


def _turn(rest: NDArray[np.int32], max_tokens: int, ends: Sequence[int]) -> NDArray[np.int32]:
    """Up to the first end-of-sequence id, or the limit."""
    longest = rest[:max_tokens]
    (found,) = np.nonzero(np.isin(longest, ends))
    return longest[: found[0] + 1] if len(found) else longest
