"""Capability classes at the coordinator: a lease asks for the budgets of its node's class alone."""

from typing import Any

from farflung.wire.lease import Lease, LeaseRequest


async def leased(pool: Any, node: str, capability_class: str) -> Lease:
    worker = await pool.worker(node)
    manifest = await worker.latest_manifest()
    request = LeaseRequest(
        node=node,
        policy_version=manifest.policy_version,
        policy_digest=manifest.policy_digest,
        capability_class=capability_class,
    )
    lease: Lease | None = await worker.lease(request, 0.0)
    assert lease is not None
    return lease


async def test_a_lease_draws_among_the_budgets_of_its_class(start: Any, build: Any) -> None:
    async with start(build.pool_spec(capability_classes={"slow": (4,)}, max_outstanding_groups=32)) as pool:
        await pool.publish()
        slow = [await leased(pool, f"slow-{number}", "slow") for number in range(4)]
        other = [await leased(pool, f"other-{number}", "any") for number in range(4)]
    assert {length for lease in slow for length in lease.target_lengths} == {4}
    assert {length for lease in other for length in lease.target_lengths} == {4, 8}
    assert {lease.capability_class for lease in slow} == {"slow"}
