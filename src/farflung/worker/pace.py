"""Which capability class a worker asks for: the one that it was told, or the largest that it has time for.

    s_per_target    running mean of seconds of a slot / sum of its target lengths        (`auto` alone)
    expected_s      s_per_target * groups_per_slot * mean target length of the class
    auto            of the classes with expected_s <= lease_s * `SHARE` the one with the longest targets, else the one
                    with the shortest

So slow machines finish a slot in about the time that fast ones do, whatever a target length counts. Before the first
slot, the class with the shortest targets is the safe one. Does not know the network or what a slot holds beside this.
"""

from statistics import mean

from farflung.errors import UserError
from farflung.wire.lease import ANY_CLASS, Lease
from farflung.wire.pool import PoolSpec

AUTO = "auto"
SHARE = 0.25
"""Of a lease's time that a slot may take: what is left is for uploads, a new version to load, and other work."""
MEMORY = 0.7
"""Weight of what was known before the newest slot."""


class Pace:
    def __init__(self, pool: PoolSpec, wanted: str) -> None:
        """Raises `UserError`: the pool has classes, and `wanted` is none of them."""
        known = {*pool.capability_classes, ANY_CLASS, AUTO}
        if pool.capability_classes and wanted not in known:
            raise UserError(
                f"worker.capability_class is {wanted!r}, which pool {pool.name} does not have: choose one of "
                f"{', '.join(sorted(known))}"
            )
        self._pool = pool
        self._wanted = wanted
        classes = {name: mean(targets) for name, targets in pool.capability_classes.items()}
        if ANY_CLASS not in classes and pool.environment.target_lengths:
            classes[ANY_CLASS] = mean(pool.environment.target_lengths)
        self._classes = sorted(classes.items(), key=lambda item: (item[1], item[0]))
        self._s_per_target: float | None = None

    def observe(self, lease: Lease, slot_s: float) -> None:
        """A slot of the lease took so long."""
        total = sum(lease.target_lengths)
        if not total:
            return
        now = slot_s / total
        before = now if self._s_per_target is None else self._s_per_target
        self._s_per_target = MEMORY * before + (1 - MEMORY) * now

    def capability_class(self) -> str:
        """To ask the next lease for."""
        if self._wanted != AUTO:
            return self._wanted
        if not self._classes:
            return ANY_CLASS
        in_time = [name for name, target in self._classes if self._expected_s(target) <= SHARE * self._pool.lease_s]
        return in_time[-1] if in_time else self._classes[0][0]

    def _expected_s(self, mean_target: float) -> float:
        if self._s_per_target is None:
            return float("inf")
        return self._s_per_target * self._pool.groups_per_slot * mean_target
