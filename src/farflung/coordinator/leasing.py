"""The workers' desk: leases, tickets, uploads, submissions."""

import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from farflung.api.errors import RefusalReason, Refused
from farflung.coordinator.core import Core
from farflung.coordinator.signals import Topic
from farflung.slots.events import Forfeited, LeaseExpired, LeaseGranted, Submitted
from farflung.slots.grants import LEASE_EXPIRED, choose_grant
from farflung.slots.leases import slot_of, write_lease
from farflung.slots.lifecycle import Slot
from farflung.wire.lease import Forfeit, Lease, LeaseRequest
from farflung.wire.submission import Receipt, Submission, UploadTicket
from farflung.wire.verdict import SlotState

logger = logging.getLogger(__name__)

SUPERSEDED = "superseded"
"""Why a lease is forfeited when its node asks for one of a newer version."""
ReadBody = Callable[[int], Awaitable[bytes]]
"""Reads a request's body of at most so many bytes."""


class LeasingDesk:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._providers: dict[str, str] = {}  # lease id -> whom it counts to; soft: a restart forgets
        self._limited: set[str] = set()  # who has had as many as one may

    async def lease(self, request: LeaseRequest, wait_s: float, provider: str | None = None) -> Lease | None:
        """A lease for the loaded version; None when there is nothing in time, or nothing more for this version.

        Args:
            provider: whom the lease counts to (`api.server.limits`); with as many as it may have it waits.
        """
        found = await self._core.poll(Topic.CAPACITY, lambda: self._find_lease(request, provider), wait_s)
        return found[0] if found else None

    async def forfeit(self, forfeit: Forfeit) -> None:
        self._core.check_signed(forfeit, forfeit.node)
        slot = self._slot(forfeit.lease_id)
        if slot.lease.lease_id == forfeit.lease_id and slot.lease.node != forfeit.node:
            raise Refused(RefusalReason.WRONG_NODE, f"lease {forfeit.lease_id} is not {forfeit.node}'s")
        if self._is_open(slot, forfeit.lease_id):
            self._core.step(Forfeited(slot=slot.slot, at_ms=self._core.now_ms(), reason=forfeit.reason))
        await self._core.committed()

    async def ticket(self, node: str, lease_id: str) -> UploadTicket:
        lease = self._open_lease(node, lease_id)
        await self._core.committed()
        return self._core.ticket(lease)

    async def upload(
        self, node: str, key: str, announced_bytes: int | None, provider: str | None, read_body: ReadBody
    ) -> None:
        """Only the holder of an open lease may write, only under its ticket's key, and only until it is submitted."""
        ticket = self._ticket_for_upload(node, key)
        num_bytes = ticket.max_bytes if announced_bytes is None else min(announced_bytes, ticket.max_bytes)
        async with self._core.incoming.hold(num_bytes, provider):
            data = await read_body(ticket.max_bytes)
            self._ticket_for_upload(node, key)
            await self._core.files.put_upload(key, data)
        if not self._is_needed(ticket.lease_id):
            self._core.garbage.append(key)

    async def submit(self, submission: Submission) -> Receipt:
        digest = submission.digest()
        receipt = self._receipt(digest)
        if receipt is None:
            self._check_claim(submission)
            await self._check_file(submission)
            receipt = self._receipt(digest)  # it may have been handed in by another connection meanwhile
        if receipt is None:
            self._check_claim(submission)
            receipt = self._write_receipt(digest, submission.slot)
            self._core.step(Submitted(submission=submission, receipt=receipt))
            self._core.files.forget_upload(submission.file_key)
        await self._core.committed()
        return receipt

    def _find_lease(self, request: LeaseRequest, provider: str | None) -> list[Lease] | None:
        """One lease; an empty list when waiting is useless; None when it is not."""
        core, table, now_ms = self._core, self._core.table, self._core.now_ms()
        version = request.policy_version
        if version > table.newest or table.versions.get(version, request.policy_digest) != request.policy_digest:
            raise Refused(
                RefusalReason.WRONG_POLICY, f"version {version} with digest {request.policy_digest} was not published"
            )
        if core.is_finished:
            return []
        if request.node in core.nodes.alive_validators(now_ms):
            raise Refused(
                RefusalReason.WRONG_NODE, f"{request.node} is a validator's name: call the worker something else"
            )
        core.nodes.loaded(request.node, version, now_ms)
        held = table.leased_to(request.node)
        if held is not None and held.lease.expires_at_ms <= now_ms:
            core.step(LeaseExpired(slot=held.slot, at_ms=now_ms, reason=LEASE_EXPIRED))
        elif held is not None and table.rules.is_deterministic:
            return [held.lease]
        elif held is not None and held.policy_version >= version:
            return [held.lease] if held.policy_version == version else []
        elif held is not None:
            core.step(Forfeited(slot=held.slot, at_ms=now_ms, reason=SUPERSEDED))
        if not self._may_hold_another(provider):
            return None
        grant = choose_grant(
            table,
            node=request.node,
            policy_version=version,
            alive_workers=core.nodes.alive_workers(now_ms),
            now_ms=now_ms,
        )
        if grant is None:
            return None if version == table.newest or table.rules.is_deterministic else []
        if table.rules.is_deterministic:
            request = self._of_version(request, table.version_of(grant.slot))
        epoch = core.state.epochs.of_slot(grant.slot)
        lease = write_lease(
            core.state.rules,
            core.state.pool_digest,
            epoch.secret,
            request,
            grant,
            now_ms=now_ms,
            plan=core.state.plan_of(request.policy_version),
            first_slot=epoch.first_slot,
        )
        lease = core.signed(lease)
        core.step(LeaseGranted(lease=lease))
        if provider is not None:
            self._providers[lease.lease_id] = provider
        return [lease]

    def _may_hold_another(self, provider: str | None) -> bool:
        """Whether the address, if it is limited, holds fewer leases than one may."""
        if provider is None:
            return True
        open_leases = {slot.lease.lease_id for slot in self._core.table.leased()}
        self._providers = {lease_id: of for lease_id, of in self._providers.items() if lease_id in open_leases}
        num_held = sum(of == provider for of in self._providers.values())
        if num_held >= self._core.config.max_leases_per_address:
            if provider not in self._limited:
                logger.warning("%s holds %d leases, the next ones are for others", provider, num_held)
            self._limited.add(provider)
            return False
        return True

    def _of_version(self, request: LeaseRequest, version: int) -> LeaseRequest:
        """The same wish for another version, which the node will have to load."""
        return replace(request, policy_version=version, policy_digest=self._core.table.versions[version])

    def _slot(self, lease_id: str) -> Slot:
        number = slot_of(lease_id)
        slot = None if number is None else self._core.table.slot(number)
        if slot is None:
            raise Refused(RefusalReason.UNKNOWN_LEASE, f"lease {lease_id!r} was never given, or was forgotten")
        return slot

    def _is_open(self, slot: Slot, lease_id: str) -> bool:
        is_in_time = self._core.now_ms() < slot.lease.expires_at_ms
        return slot.state is SlotState.LEASED and slot.lease.lease_id == lease_id and is_in_time

    def _open_lease(self, node: str, lease_id: str) -> Lease:
        slot = self._slot(lease_id)
        if not self._is_open(slot, lease_id):
            raise Refused(RefusalReason.LEASE_OVER, f"lease {lease_id} is over: its slot is {slot.state}")
        if slot.lease.node != node:
            raise Refused(RefusalReason.WRONG_NODE, f"lease {lease_id} is not {node}'s")
        return slot.lease

    def _ticket_for_upload(self, node: str, key: str) -> UploadTicket:
        slot = self._core.table.leased_to(node)
        if slot is None or not self._is_open(slot, slot.lease.lease_id) or self._core.ticket(slot.lease).key != key:
            raise Refused(RefusalReason.UNKNOWN_UPLOAD, f"{node} has no open ticket for {key}")
        return self._core.ticket(slot.lease)

    def _is_needed(self, lease_id: str) -> bool:
        """Whether an upload for this lease may still be, or is, part of a submission."""
        number = slot_of(lease_id)
        slot = None if number is None else self._core.table.slot(number)
        if slot is None or slot.lease.lease_id != lease_id:
            return False
        return slot.state is SlotState.LEASED or slot.submission is not None

    def _receipt(self, digest: str) -> Receipt | None:
        slot = self._core.table.submission(digest)
        return None if slot is None else slot.receipt

    def _check_claim(self, submission: Submission) -> None:
        """The record against the lease; nothing is read from disk."""
        rules = self._core.state.rules
        if submission.pool_digest != self._core.state.pool_digest:
            raise Refused(RefusalReason.WRONG_POOL, f"the submission is for pool {submission.pool_digest}")
        if min(submission.num_rollouts, submission.num_tokens, submission.file_bytes) < 1:
            raise Refused(
                RefusalReason.EMPTY_WORK,
                f"{submission.num_rollouts} rollouts, {submission.num_tokens} tokens, {submission.file_bytes} bytes: "
                "each must be at least 1",
            )
        self._core.check_signed(submission, submission.node)
        lease = self._open_lease(submission.node, submission.lease_id)
        most_rollouts = rules.rollouts_per_slot
        expected = {
            "slot": lease.slot,
            "attempt": lease.attempt,
            "policy_version": lease.policy_version,
            "policy_digest": lease.policy_digest,
            "file_key": self._core.ticket(lease).key,
            "num_rollouts": most_rollouts,
        }
        most_tokens = most_rollouts * rules.max_completion_tokens
        if submission.num_tokens > most_tokens:
            raise Refused(
                RefusalReason.LEASE_MISMATCH,
                f"num_tokens is {submission.num_tokens}, but a slot has at most {most_tokens} completion tokens",
            )
        for name, value in expected.items():
            if getattr(submission, name) != value:
                raise Refused(
                    RefusalReason.LEASE_MISMATCH,
                    f"{name} is {getattr(submission, name)!r}, lease {lease.lease_id} says {value!r}",
                )

    async def _check_file(self, submission: Submission) -> None:
        """What is acknowledged is in the store, byte for byte."""
        stored = await self._core.files.upload_digest(submission.file_key, submission.file_bytes)
        if stored is None:
            raise Refused(
                RefusalReason.FILE_MISSING, f"{submission.file_key} with {submission.file_bytes} bytes is not there"
            )
        if stored != submission.file_digest:
            raise Refused(
                RefusalReason.DIGEST_MISMATCH,
                f"{submission.file_key} has sha256 {stored}, the submission says {submission.file_digest}",
            )

    def _write_receipt(self, digest: str, slot: int) -> Receipt:
        now_ms = self._core.now_ms()
        judge_ms = round(self._core.config.judge_s * 1000) * self._core.config.max_judgings
        receipt = Receipt(
            submission_digest=digest,
            sequence=self._core.next_sequence,
            epoch=self._core.state.epochs.of_slot(slot).number,
            received_at_ms=now_ms,
            deadline_ms=now_ms + judge_ms,
        )
        return self._core.signed(receipt)
