"""What a worker of a proven pool commits to is what its engine computed, in one turn or in several."""

from typing import Any

import pytest
from msgspec.structs import replace

from farflung.broadcast.fetched import FetchedPolicy
from farflung.broadcast.publish import prepare
from farflung.envs.base import Environment
from farflung.envs.take_away import TakeAway
from farflung.model.build import build_decoder
from farflung.model.config import ModelConfig
from farflung.model.factory import random_state
from farflung.model.vocabulary import never_drawn
from farflung.model.weights import from_safetensors_bytes, load_hf_state, to_safetensors_bytes
from farflung.trainer.model_source import describe
from farflung.validator.prefill import Claim, PrefillParams, figures_of
from farflung.wire.lease import Lease
from farflung.wire.pool import EnvironmentSpec, PoolSpec
from farflung.wire.proof import DEFAULT_RULES, ProofRules, RolloutFigures, Scheme
from farflung.wire.rollout import Rollout
from farflung.worker.sampler import Sampler
from tiny_pool import environment, pool_spec, trainer_config

ARGS = {"max_pile": 9, "max_take": 3}
GAME = TakeAway(0, ARGS)
SEED = bytes(range(32))
ADDRESS = "0x" + "Ab" * 20


class Place:
    """A policy for an environment, in a pool with proofs of a scheme or without."""

    def __init__(self, environment: Environment, scheme: Scheme | None) -> None:
        self.environment = environment
        made = describe(trainer_config().model, environment)
        assert isinstance(made.config, ModelConfig)
        self.config, self.tokenizer = made.config, made.tokenizer
        weights = to_safetensors_bytes(random_state(made.config, 0, std=0.3))
        self.state = from_safetensors_bytes(weights, max_bytes=len(weights))  # rounded, as versions are
        self.pool = self._pool(made.config_digest, scheme)
        files = {**made.policy_files, "model.safetensors": weights}
        published = prepare(
            files, tensors=(), pool_digest=self.pool.digest(), policy_version=0, optimizer_step=0, published_at_ms=0,
            expires_at_ms=1,
        )  # fmt: skip
        fetched = FetchedPolicy(manifest=published.manifest, files=files)
        self.sampler = Sampler.from_policy(
            fetched, self.pool, max_batch_rows=8, num_threads=1, should_stop=lambda: False
        )

    def _pool(self, config_digest: str, scheme: Scheme | None) -> PoolSpec:
        proven: dict[str, Any] = {"trust": "proven", "coordinator": ADDRESS.lower(), "trainer": ADDRESS.lower()}
        spec = EnvironmentSpec(
            name=self.environment.name,
            num_tasks=self.environment.num_tasks,
            num_agents=2 if self.environment is GAME else 1,
            args=ARGS if self.environment is GAME else {},
        )
        return pool_spec(
            environment=spec,
            tokenizer_digest=self.tokenizer.digest,
            model_config_digest=config_digest,
            max_prompt_tokens=16,
            max_completion_tokens=70,
            **({} if scheme is None else proven | {"proofs": rules(scheme)}),
        )

    def sampled(self) -> list[Rollout]:
        lease = Lease(
            pool_digest=self.pool.digest(), lease_id="0-0", slot=0, attempt=0, node="w", policy_version=0,
            policy_digest="ab" * 32, task_indices=(3, 7), target_lengths=(0, 0), draw_seed=SEED.hex(),
            capability_class="any", issued_at_ms=0, expires_at_ms=1,
        )  # fmt: skip
        return self.sampler.sample(lease, self.environment, self.pool)

    def examined(self, rows: list[Rollout], scheme: Scheme) -> list[RolloutFigures]:
        """By the policy itself; what was told to it has a logprob of 0."""
        decoder = build_decoder(self.config).requires_grad_(False)
        load_hf_state(decoder, self.state)
        reserved = never_drawn(self.tokenizer, self.config)
        params = PrefillParams(temperature=1.0, reserved_token_ids=reserved, scheme=scheme)
        return figures_of(decoder, [Claim(rollout=row, spans=spans_of(row), draw_seed=SEED) for row in rows], params)


def rules(scheme: Scheme) -> ProofRules:
    return replace(DEFAULT_RULES, scheme=scheme)


def spans_of(row: Rollout) -> tuple[tuple[int, int], ...]:
    drawn = [at for at, logprob in enumerate(row.logprobs.tolist()) if logprob < 0]
    return tuple((at, at + 1) for at in drawn)


@pytest.mark.parametrize("scheme", ["sketch", "toploc"])
@pytest.mark.parametrize("environment", [environment(), GAME], ids=["one turn", "several turns"])
def test_a_slot_is_committed_to_as_it_was_computed(environment: Environment, scheme: Scheme) -> None:
    place = Place(environment, scheme)
    rows = place.sampled()
    is_game = environment is GAME
    assert is_game == any(len(spans_of(row)) < len(row.completion_tokens) for row in rows), "turns with words between"
    found = place.examined(rows, scheme)
    assert all(each.max_margin < 1e-4 for each in found)
    assert max(max(each.activation_chunks) for each in found) < 0.01
    assert {len(row.proof) > 0 for row in rows} == {True}


def test_an_open_pool_asks_for_none() -> None:
    assert {row.proof for row in Place(GAME, None).sampled()} == {b""}
