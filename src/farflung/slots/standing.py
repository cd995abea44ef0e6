"""What a pool remembers of each node beyond the slots: leases it had and lost, work that was accepted, bonds lost.

    over budget     lost > forfeit_allowance + forfeit_share * leases

A lease is lost when its node gives it back or lets it run out: both are ways to look at a slot's draws and not to hand
them in (run it, dislike the rewards, drop it), and an honest node does neither often. Being over the budget is a fault
of liveness; it is recorded, and no proof of intent. Nodes beyond `MAX_NODES` are forgotten, longest unheard of first.
"""

from msgspec.structs import replace

from farflung.wire.canonical import Record
from farflung.wire.check_rules import CheckRules

MAX_NODES = 4096


class Standing(Record, frozen=True, kw_only=True):
    """Of one worker."""

    num_leases: int = 0
    num_lost: int = 0
    num_accepted: int = 0

    def is_over_budget(self, rules: CheckRules) -> bool:
        return self.num_lost > rules.forfeit_allowance + rules.forfeit_share * self.num_leases


class StandingsState(Record, frozen=True, kw_only=True):
    """For a snapshot."""

    workers: dict[str, Standing] = {}
    lost_bonds: dict[str, str] = {}
    """Validator -> digest of the fault that cost it."""


class Standings:
    """Everybody's."""

    def __init__(self, state: StandingsState) -> None:
        self._workers = dict(state.workers)
        self.lost_bonds = dict(state.lost_bonds)
        """Validator -> digest of the fault that cost it."""

    @property
    def state(self) -> StandingsState:
        return StandingsState(workers=dict(self._workers), lost_bonds=dict(self.lost_bonds))

    def of(self, node: str) -> Standing:
        """Of a worker; of one that nobody knows, that of a new one."""
        return self._workers.get(node, Standing())

    def leased(self, node: str) -> None:
        before = self.of(node)
        self._put(node, replace(before, num_leases=before.num_leases + 1))

    def lost(self, node: str) -> None:
        before = self.of(node)
        self._put(node, replace(before, num_lost=before.num_lost + 1))

    def accepted(self, node: str) -> None:
        before = self.of(node)
        self._put(node, replace(before, num_accepted=before.num_accepted + 1))

    def _put(self, node: str, standing: Standing) -> None:
        self._workers.pop(node, None)  # the last ones are those heard of last
        self._workers[node] = standing
        while len(self._workers) > MAX_NODES:
            del self._workers[next(iter(self._workers))]
