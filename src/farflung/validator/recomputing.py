"""What claims are compared with in a pool that wants proofs: the version of their lease, computed again.

A module of its own because it needs torch, which a validator of an open pool never loads. Does not know verdicts.
"""

from collections.abc import Sequence

import torch
from msgspec.structs import replace

from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.api.patience import Patience
from farflung.broadcast.fetch import PolicyFetcher
from farflung.broadcast.trust import Guard
from farflung.errors import OurFault, PeerFault
from farflung.model.devices import find_device
from farflung.validator.config import ValidatorConfig
from farflung.validator.judging_process import Compute
from farflung.validator.messages import ClaimedRow
from farflung.validator.policies import Policies
from farflung.validator.prefill import PrefillParams, claim_of, figures_of
from farflung.validator.sampling_again import sample_again
from farflung.wire.manifest import Manifest
from farflung.wire.pool import PoolSpec
from farflung.wire.proof import ProofRules, RolloutFigures
from farflung.wire.submission import Assignment


class Recomputing:
    """The versions in use, and what they make of a submission's tokens."""

    def __init__(
        self,
        config: ValidatorConfig,
        pool: PoolSpec,
        rules: ProofRules,
        *,
        client: CoordinatorClient,
        patience: Patience,
        fetcher: PolicyFetcher,
        guard: Guard,
        reserved_token_ids: tuple[int, ...],
        eos_token_ids: tuple[int, ...],
    ) -> None:
        self._eos_token_ids = eos_token_ids
        self._client = client
        self._patience = patience
        self._guard = guard
        self._params = PrefillParams(
            temperature=pool.temperature, reserved_token_ids=reserved_token_ids, scheme=rules.scheme
        )
        self._policies = Policies(
            fetcher,
            self._old_manifest,
            self._manifest_of,
            max_versions=pool.max_staleness + 2,
            device=find_device(config.device, "validator.device"),
            on_fault=guard.fault,
        )
        torch.set_num_threads(config.num_threads)

    async def computing(self, assignment: Assignment) -> Compute:
        """The computation of one submission, valid until the next call.

        Raises:
            OurFault: the version is out of reach.
        """
        lease = assignment.lease
        try:
            decoder = await self._patience(lambda: self._policies.decoder_of(lease.policy_version))
        except (Refused, PeerFault) as error:
            raise OurFault(f"version {lease.policy_version} is out of reach: {error}") from error

        def compute(rows: Sequence[ClaimedRow]) -> list[RolloutFigures]:
            claims = [claim_of(row, lease) for row in rows]
            figures = figures_of(decoder, claims, self._params)
            audited = assignment.audited_rollout
            if audited is not None and audited < len(claims):
                resampled = sample_again(decoder, claims[audited], self._params, self._eos_token_ids)
                figures[audited] = replace(figures[audited], resampled=resampled)
            return figures

        return compute

    async def _old_manifest(self, version: int) -> Manifest | None:
        try:
            return await self._patience(lambda: self._client.manifest(version))
        except Refused:
            return None

    async def _manifest_of(self, version: int) -> Manifest:
        manifest = await self._client.manifest(version)
        if not self._guard.admits_named(manifest, version):
            raise OurFault(f"the manifest of version {version} is not to be believed")
        return manifest
