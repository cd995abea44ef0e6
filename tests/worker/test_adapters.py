"""Versions that are adapters: the base is fetched and loaded once, and what is sampled with is bound by the digest."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from farflung.api.client import CoordinatorClient
from farflung.broadcast.fetched import FetchedPolicy
from farflung.broadcast.publish import cut_files, prepare
from farflung.errors import PeerFault, UserError
from farflung.model.folder import WEIGHTS_FILE
from farflung.model.lora import B
from farflung.trainer.config import OptimizerConfig
from farflung.trainer.lora_policy import LoraPolicy
from farflung.wire.lease import Lease
from farflung.wire.node import Role
from farflung.wire.rollout import Rollout
from farflung.wire.verdict import RejectReason
from farflung.worker import service
from farflung.worker.config import WorkerConfig
from farflung.worker.sampler import Sampler
from running_pool import coordinator, crew, publish_version
from tiny_pool import FAST, description, environment, pool_spec, tiny_lora_policy

POOL = pool_spec()


def moved(policy: LoraPolicy, amount: float) -> LoraPolicy:
    """As after some steps."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in policy.master_parameters().items():
            if name.endswith(B):
                parameter.copy_(amount * torch.randn(parameter.shape, generator=generator))
    policy.round_masters()
    return policy


def version_of(policy: LoraPolicy, version: int) -> FetchedPolicy:
    """As a worker gets it that has nothing yet."""
    base, weights = policy.base_file(), policy.weights_file()
    assert base is not None
    files = {**description().policy_files, **policy.config_files, weights.name: weights.data}
    made = prepare(
        files,
        tensors=(),
        pool_digest=POOL.digest(),
        policy_version=version,
        optimizer_step=version,
        published_at_ms=0,
        expires_at_ms=1,
        base=cut_files({WEIGHTS_FILE: base}, 1024),
    )
    return FetchedPolicy(manifest=made.manifest, files={**files, WEIGHTS_FILE: base})


def without_base(fetched: FetchedPolicy) -> FetchedPolicy:
    files = {name: data for name, data in fetched.files.items() if name != WEIGHTS_FILE}
    return FetchedPolicy(manifest=fetched.manifest, files=files)


def a_sampler(fetched: FetchedPolicy) -> Sampler:
    return Sampler.from_policy(fetched, POOL, max_batch_rows=16, num_threads=1, should_stop=lambda: False)


def sampled(sampler: Sampler, version: int) -> Sequence[Rollout]:
    lease = Lease(
        pool_digest=POOL.digest(),
        lease_id="3-0",
        slot=3,
        attempt=0,
        node="w",
        policy_version=version,
        policy_digest=sampler.policy_digest,
        task_indices=(5, 7),
        target_lengths=(0, 0),
        draw_seed="5e" * 32,
        capability_class="any",
        issued_at_ms=0,
        expires_at_ms=1,
    )
    return sampler.sample(lease, environment(), POOL)


def drawn(rollouts: Sequence[Rollout]) -> list[tuple[list[int], list[float]]]:
    return [(rollout.completion_tokens.tolist(), rollout.logprobs.tolist()) for rollout in rollouts]


def test_a_swap_needs_the_adapter_alone_and_gives_what_a_fresh_worker_samples() -> None:
    first, second = version_of(tiny_lora_policy("adapter"), 0), version_of(moved(tiny_lora_policy("adapter"), 0.5), 1)
    sampler = a_sampler(first)
    before = drawn(sampled(sampler, 0))
    assert sampler.base_sha256 == first.sha256_of(WEIGHTS_FILE) == second.sha256_of(WEIGHTS_FILE)
    sampler.swap(without_base(second))
    assert (sampler.policy_version, sampler.policy_digest) == (1, second.manifest.policy_digest)
    assert drawn(sampled(sampler, 1)) == drawn(sampled(a_sampler(second), 1)) != before
    sampler.swap(without_base(first))
    assert drawn(sampled(sampler, 0)) == before


def test_the_policy_digest_binds_base_and_adapter() -> None:
    policy = tiny_lora_policy("adapter")
    plain, other_adapter = version_of(policy, 0), version_of(moved(tiny_lora_policy("adapter"), 0.5), 0)
    base = dict(policy.base_state())
    base["model.norm.weight"] = base["model.norm.weight"] * 2
    other_base = version_of(
        LoraPolicy(policy.config, base, policy.masters_state(), policy.lora, "adapter", OptimizerConfig()), 0
    )
    digests = [fetched.manifest.policy_digest for fetched in (plain, other_adapter, other_base)]
    assert len(set(digests)) == 3
    assert {fetched.manifest.kind for fetched in (plain, other_adapter, other_base)} == {"adapter"}
    assert a_sampler(other_base).base_sha256 != a_sampler(plain).base_sha256


def test_an_adapter_that_is_broken_is_refused_and_the_old_one_stays() -> None:
    good, sampler = version_of(tiny_lora_policy("adapter"), 0), a_sampler(version_of(tiny_lora_policy("adapter"), 0))
    before = drawn(sampled(sampler, 0))
    for name, data in (
        ("adapter_model.safetensors", b"nonsense"),
        ("adapter_config.json", b"{}"),
        ("adapter_config.json", good.files["adapter_config.json"].replace(b'"r": 4', b'"r": 3')),
    ):
        bad = FetchedPolicy(manifest=good.manifest, files={**without_base(good).files, name: data})
        with pytest.raises((PeerFault, UserError)):
            sampler.swap(bad)
        assert drawn(sampled(sampler, 0)) == before


async def test_a_worker_fetches_the_base_once_and_then_adapters_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "CHUNK_CACHE_BYTES", 4096)  # far less than the base
    fetched_bytes: list[int] = []
    get_chunk = CoordinatorClient.get_chunk

    async def counting(self: CoordinatorClient, sha256: str, num_bytes: int) -> bytes:
        fetched_bytes.append(num_bytes)
        return await get_chunk(self, sha256, num_bytes)

    monkeypatch.setattr(CoordinatorClient, "get_chunk", counting)
    policy, stop = tiny_lora_policy("adapter"), asyncio.Event()
    base, weights = policy.base_file(), policy.weights_file()
    assert base is not None
    async with (
        coordinator(tmp_path, POOL) as url,
        crew(url, POOL) as workers,
        CoordinatorClient(url, node="trainer", role=Role.TRAINER) as trainer,
    ):
        await publish_version(trainer, POOL, policy)
        settings = WorkerConfig.model_validate({**FAST, "node": "sampler", "max_batch_rows": 16})
        working = asyncio.create_task(service.run(settings, url=url, stop=stop))
        try:
            versions: set[int] = set()
            async with asyncio.timeout(30):
                for version in range(3):
                    if version:
                        fetched_bytes.clear()
                        await publish_version(trainer, POOL, moved(policy, 0.1 * version))
                    while version not in versions:
                        found = await workers.validator.assignments(8, wait_s=0.5)
                        for assignment in found:
                            versions.add(assignment.submission.policy_version)
                            await workers.judge(assignment.submission, RejectReason.SCHEMA)
                    if not version:
                        assert sum(fetched_bytes) >= len(base)
            small = len(weights.data) + sum(map(len, description().policy_files.values())) + 4096
            assert len(weights.data) <= sum(fetched_bytes) <= small
            assert len(base) > 2 * small or len(base) not in fetched_bytes
        finally:
            stop.set()
            with suppress(asyncio.CancelledError):
                await working
