"""Mixing one's own experience with that of others: the sampler of SAPO, arXiv 2509.08721, over groups.

    external groups without signal are dropped, then J of the rest and I of the local ones are drawn uniformly

Drawing is by a hash of seed and name, so it depends on neither the order of arrival nor a library's generator: the
groups with the I (or J) smallest digests. The paper's best share is I = J; with I = 2, J = 6 policies oscillate and
forget. A group that all rollouts solved has advantages of 0 and is no experience, however high its total reward.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from farflung.rl.signal import JudgedOn, why_no_learning
from farflung.rl.types import RolloutGroup


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Mix:
    """What to train on; fewer than asked for where there was not enough."""

    local: tuple[RolloutGroup, ...]
    external: tuple[RolloutGroup, ...]
    num_without_signal: int
    """External groups that were dropped before drawing."""

    @property
    def groups(self) -> tuple[RolloutGroup, ...]:
        return self.local + self.external


def mix_groups(
    local: Sequence[RolloutGroup],
    external: Sequence[RolloutGroup],
    *,
    num_local: int,
    num_external: int,
    seed: int,
    judged_on: JudgedOn = "correct",
) -> Mix:
    """A uniform draw without replacement, the same for the same groups and seed, in order of slot and group.

    Raises:
        ValueError: a negative number of groups.
    """
    if num_local < 0 or num_external < 0:
        raise ValueError(f"num_local is {num_local} and num_external {num_external}: both must be >= 0")
    with_signal = [group for group in external if why_no_learning(group, judged_on=judged_on) is None]
    return Mix(
        local=_draw(local, num_local, seed, b"local"),
        external=_draw(with_signal, num_external, seed, b"external"),
        num_without_signal=len(external) - len(with_signal),
    )


def _draw(groups: Sequence[RolloutGroup], count: int, seed: int, label: bytes) -> tuple[RolloutGroup, ...]:
    def digest(group: RolloutGroup) -> bytes:
        return blake2b(b"%s/%d/%d/%d" % (label, seed, group.slot, group.group), digest_size=16).digest()

    drawn = sorted(groups, key=digest)[:count]
    return tuple(sorted(drawn, key=lambda group: (group.slot, group.group)))
