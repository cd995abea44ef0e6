"""DAPO's soft overlong punishment, arXiv 2503.14476: a reward term that grows over the last `buffer_tokens`.

    length                penalty
    up to L - buffer      0
    between               -(length - (L - buffer)) / buffer * factor
    L and above           -factor                                          L: max_length_tokens

It is shaping: whether a group has signal is decided on the reward without it (`rl.signal`). It overlaps with masking
truncated rollouts out of the loss (`rl.samples`); use one of the two.
"""


def overlong_penalty(num_tokens: int, *, max_length_tokens: int, buffer_tokens: int, factor: float = 1.0) -> float:
    """What to add to the reward of a completion, in [-factor, 0].

    >>> [overlong_penalty(n, max_length_tokens=20480, buffer_tokens=4096) for n in (16384, 18432, 20480)]
    [0.0, -0.5, -1.0]

    Raises:
        ValueError: a buffer that is not between 1 and the maximum, or a negative factor.
    """
    if not 1 <= buffer_tokens <= max_length_tokens:
        raise ValueError(
            f"buffer_tokens is {buffer_tokens} with max_length_tokens {max_length_tokens}: it must be in 1 to that"
        )
    if not factor >= 0:
        raise ValueError(f"factor is {factor}: it must be >= 0")
    excess = num_tokens - (max_length_tokens - buffer_tokens)
    return -factor * min(max(excess, 0), buffer_tokens) / buffer_tokens
