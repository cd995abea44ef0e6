import json
from dataclasses import replace as replace_in
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from farflung.broadcast.fetched import FetchedPolicy
from farflung.broadcast.publish import prepare
from farflung.engine.base import Cancelled
from farflung.engine.fake import FakeEngine
from farflung.errors import PeerFault
from farflung.model.weights import to_safetensors_bytes
from farflung.trainer.policy import Policy
from farflung.wire.canonical import sha256_hex
from farflung.wire.lease import Lease
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout import StopReason
from farflung.worker.sampler import Sampler, Unworkable
from tiny_pool import description, environment, pool_spec, sampling, tiny_policy

POOL = pool_spec()


def fetched(policy: Policy, version: int) -> FetchedPolicy:
    files = {**description().policy_files, "model.safetensors": to_safetensors_bytes(policy.published_state())}
    made = prepare(
        files,
        tensors=(),
        pool_digest=POOL.digest(),
        policy_version=version,
        optimizer_step=version,
        published_at_ms=0,
        expires_at_ms=1,
    )
    return FetchedPolicy(manifest=made.manifest, files=files)


def a_lease(slot: int = 3, version: int = 0, tasks: tuple[int, ...] = (5, 7), seed: str = "5e" * 32) -> Lease:
    return Lease(
        pool_digest=POOL.digest(),
        lease_id=f"{slot}-0",
        slot=slot,
        attempt=0,
        node="w",
        policy_version=version,
        policy_digest=sha256_hex(b"p"),
        task_indices=tasks,
        target_lengths=(0,) * len(tasks),
        draw_seed=seed,
        capability_class="any",
        issued_at_ms=0,
        expires_at_ms=1,
    )


def a_sampler(policy: FetchedPolicy | None = None, **rest: Any) -> Sampler:
    values = {"max_batch_rows": 16, "num_threads": 1, "should_stop": lambda: False} | rest
    return Sampler.from_policy(policy or fetched(tiny_policy(), 0), POOL, **values)


def test_every_rollout_of_the_lease_in_order_on_the_leases_tasks() -> None:
    rollouts = a_sampler().sample(a_lease(), environment(), POOL)
    assert [(rollout.group, rollout.sample) for rollout in rollouts] == [(g, s) for g in range(2) for s in range(4)]
    for rollout in rollouts:
        task = environment().task("train", (5, 7)[rollout.group])
        assert (rollout.env, rollout.task_id, rollout.policy_version) == ("sort-digits", task.task_id, 0)
        assert rollout.prompt_tokens.tolist() == description().tokenizer.encode_chat(task.messages)
        assert len(rollout.logprobs) == len(rollout.completion_tokens) <= POOL.max_completion_tokens
        assert (rollout.stop_reason is StopReason.EOS) == (rollout.completion_tokens[-1] == 1)


def test_the_lease_fixes_every_token_and_another_seed_gives_others() -> None:
    tokens = [
        [rollout.completion_tokens.tolist() for rollout in a_sampler().sample(a_lease(seed=seed), environment(), POOL)]
        for seed in ("5e" * 32, "5e" * 32, "5f" * 32)
    ]
    assert tokens[0] == tokens[1]
    assert tokens[0] != tokens[2]


def test_a_swap_changes_version_digest_and_weights() -> None:
    first, second = fetched(tiny_policy(0), 0), fetched(tiny_policy(1), 4)
    sampler = a_sampler(first)
    before = sampler.sample(a_lease(), environment(), POOL)
    assert (sampler.policy_version, sampler.policy_digest) == (0, first.manifest.policy_digest)
    sampler.swap(second)
    assert (sampler.policy_version, sampler.policy_digest) == (4, second.manifest.policy_digest)
    after = sampler.sample(a_lease(version=4), environment(), POOL)
    assert {rollout.policy_version for rollout in after} == {4}
    fresh = a_sampler(second).sample(a_lease(version=4), environment(), POOL)
    assert [r.completion_tokens.tolist() for r in after] == [r.completion_tokens.tolist() for r in fresh]
    assert not all(np.array_equal(a.logprobs, b.logprobs) for a, b in zip(before, after, strict=True))


def test_reserved_ids_are_never_drawn() -> None:
    reserved = set(sampling(POOL).reserved_token_ids)
    for slot in range(20):
        for rollout in a_sampler().sample(a_lease(slot, seed=f"{slot:064x}"), environment(), POOL):
            assert not reserved & set(rollout.completion_tokens.tolist())


def test_a_prompt_that_is_too_long_is_never_cut() -> None:
    """Case T13. Sampling only the other tasks of the lease would be choosing one's work."""
    pool: PoolSpec = replace(POOL, max_prompt_tokens=2)
    with pytest.raises(Unworkable, match=r"task train/5 has a prompt of 3 tokens, pool.max_prompt_tokens is 2"):
        a_sampler().sample(a_lease(), environment(), pool)


def test_it_can_be_told_to_stop() -> None:
    with pytest.raises(Cancelled):
        a_sampler(should_stop=lambda: True).sample(a_lease(), environment(), POOL)


def test_the_prompt_is_what_the_engine_is_asked_for() -> None:
    """Case T7, with an engine that answers with its prompt."""
    engine = FakeEngine(64, script=lambda prompt: [*prompt[:2], 1])
    sampler = Sampler(engine, description().tokenizer, sampling(POOL), fetched(tiny_policy(), 2))
    assert sampler.policy_version == 2
    for rollout in sampler.sample(a_lease(version=2), environment(), POOL):
        assert rollout.completion_tokens.tolist() == [*rollout.prompt_tokens.tolist()[:2], 1]


def test_a_policy_of_another_tokenizer_is_refused() -> None:
    policy = fetched(tiny_policy(), 0)
    tokenizer = json.loads(policy.files["tokenizer.json"])
    tokenizer["added_tokens"][0]["content"] = "<other>"
    tokenizer["model"]["vocab"] = {
        {"<pad>": "<other>"}.get(name, name): number for name, number in tokenizer["model"]["vocab"].items()
    }
    other = replace_in(policy, files={**policy.files, "tokenizer.json": json.dumps(tokenizer).encode()})
    with pytest.raises(PeerFault, match="wrong_pool"):
        a_sampler(other)


def test_a_worker_never_grades_and_claims_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    """What completions are worth is found out on the trusted side, above all where a judge says so."""
    env = environment()

    def refuse(task: Any, completion: str) -> Any:
        raise AssertionError("a worker asked for a grade")

    monkeypatch.setattr(env, "grade", refuse)
    rollouts = a_sampler().sample(a_lease(), env, POOL)
    assert {rollout.claimed_reward for rollout in rollouts} == {0.0}
