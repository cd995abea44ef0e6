"""A loaded policy that turns leases into rollouts: task -> canonical prompt -> engine -> rollout records.

Episodes of several turns or agents are played in rounds (`engine.rounds`); each agent of each is one rollout.

Does not know the network; one lease, one policy version.
"""

import json
from collections.abc import Callable
from typing import Self

import numpy as np
import torch

from farflung.broadcast.fetched import FetchedPolicy, HeldWeights
from farflung.engine.base import Completion, Engine, GroupRequest, SamplingParams
from farflung.engine.rounds import Seat, play
from farflung.engine.torch_engine import TorchEngine
from farflung.envs.base import Environment
from farflung.envs.episode import Episodic, as_episodic
from farflung.envs.playing import Episode, EpisodeLimits
from farflung.errors import FarflungError, PeerFault
from farflung.model.adapter_files import CONFIG as ADAPTER_CONFIG
from farflung.model.adapter_files import WEIGHTS as ADAPTER
from farflung.model.adapter_files import read_adapter
from farflung.model.any_config import read_config
from farflung.model.description import CONFIG_FILE
from farflung.model.devices import CPU
from farflung.model.tokenizer import Tokenizer
from farflung.model.vocabulary import end_of_sequence, never_drawn
from farflung.model.weights import from_safetensors_bytes, views_of_safetensors
from farflung.proofs.commitments import Commitments
from farflung.wire.lease import Lease
from farflung.wire.pool import PoolSpec
from farflung.wire.rollout import Rollout, StopReason
from farflung.wire.task import Task

WEIGHTS = "model.safetensors"


class Unworkable(FarflungError):
    """The lease cannot be worked on under the pool's rules. Sampling it in part would be choosing one's tasks."""


class Sampler:
    """An engine with its tokenizer; `swap` between leases."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, params: SamplingParams, fetched: FetchedPolicy) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._params = params
        self.policy_digest = ""
        self.base_sha256 = ""
        """Of the weights file below adapters, which need not be fetched again; empty without one."""
        self._holds_weights = False
        """Whether the engine has the weights of a version that patches are followed from, and nothing beside them."""
        self.swap(fetched)

    @classmethod
    def from_policy(
        cls,
        fetched: FetchedPolicy,
        pool: PoolSpec,
        *,
        max_batch_rows: int,
        num_threads: int,
        should_stop: Callable[[], bool],
        device: torch.device = CPU,
    ) -> Self:
        """Build engine and tokenizer from a version's own files.

        Raises:
            PeerFault: the files are not a model of this pool.
        """
        tokenizer = Tokenizer.from_files(fetched.files)
        if tokenizer.digest != pool.tokenizer_digest:
            raise PeerFault("wrong_pool", f"tokenizer {tokenizer.digest}, the pool says {pool.tokenizer_digest}")
        config = read_config(json.loads(fetched.files[CONFIG_FILE]))
        params = SamplingParams(
            temperature=pool.temperature,
            max_completion_tokens=pool.max_completion_tokens,
            eos_token_ids=end_of_sequence(tokenizer, config),
            reserved_token_ids=never_drawn(tokenizer, config),
        )
        engine = TorchEngine(
            config,
            max_batch_rows=max_batch_rows,
            num_threads=num_threads,
            device=device,
            should_stop=should_stop,
        )
        return cls(engine, tokenizer, params, fetched)

    @property
    def policy_version(self) -> int:
        return self._engine.policy_version

    def swap(self, fetched: FetchedPolicy) -> None:
        """Load another version; the engine is idle between leases, so a rollout has one version."""
        version = fetched.manifest.policy_version
        if fetched.manifest.kind != "adapter":
            self._load_weights(fetched, version)
        else:
            if fetched.sha256_of(WEIGHTS) != self.base_sha256:
                self._load_weights(fetched, version)
            self._load_adapter(fetched, version)
        self.policy_digest = fetched.manifest.policy_digest

    def _load_weights(self, fetched: FetchedPolicy, version: int) -> None:
        self.base_sha256 = ""
        if fetched.weights is not None:
            self._follow(fetched.weights)
            return
        data = fetched.files[WEIGHTS]
        self._holds_weights = False
        self._engine.load_weights(from_safetensors_bytes(data, max_bytes=len(data)), version)
        if fetched.manifest.kind == "adapter":
            self.base_sha256 = fetched.sha256_of(WEIGHTS)

    def _follow(self, weights: HeldWeights) -> None:
        """Write what changed since the loaded version, if that is known, else everything."""
        state = views_of_safetensors(weights.data)
        changed = weights.changed_since(self.policy_version) if self._holds_weights else None
        if changed is None:
            self._engine.load_weights(state, weights.policy_version)
        else:
            self._engine.update_weights(state, changed, weights.policy_version)
        self._holds_weights = True

    def _load_adapter(self, fetched: FetchedPolicy, version: int) -> None:
        config = read_config(json.loads(fetched.files[CONFIG_FILE]))
        adapter = read_adapter(config, fetched.files[ADAPTER_CONFIG], fetched.files[ADAPTER])
        self._engine.load_adapter(adapter, version)

    def sample(self, lease: Lease, environment: Environment, pool: PoolSpec) -> list[Rollout]:
        """Every rollout of the lease, ordered by (group, sample).

        Raises:
            Unworkable: a prompt is longer than the pool allows, or an episode ends before every agent has spoken.
            Cancelled: the engine was told to stop.
        """
        proofs = commitments_of(lease, pool)
        if isinstance(environment, Episodic):
            seats = self.play(lease, environment, pool, proofs)
            return [rollout for seat in seats for rollout in rollouts_of(seat, lease, proofs)]
        tasks = [
            environment.task("train", index, target)
            for index, target in zip(lease.task_indices, lease.target_lengths, strict=True)
        ]
        requests = [
            GroupRequest(
                group=group,
                prompt_tokens=np.array(self._tokenizer.encode_chat(task.messages), dtype=np.int32),
                num_samples=pool.group_size,
            )
            for group, task in enumerate(tasks)
        ]
        for task, request in zip(tasks, requests, strict=True):
            if len(request.prompt_tokens) > pool.max_prompt_tokens:
                raise Unworkable(
                    f"task {task.task_id} has a prompt of {len(request.prompt_tokens)} tokens, pool.max_prompt_tokens "
                    f"is {pool.max_prompt_tokens}"
                )
        draw_seed = bytes.fromhex(lease.draw_seed)
        completions = self._engine.generate(requests, self._params, draw_seed, sink=proofs)
        return [
            _rollout(tasks[completion.group], requests[completion.group], completion, lease, proofs)
            for completion in completions
        ]

    def play(
        self, lease: Lease, environment: Environment, pool: PoolSpec, proofs: Commitments | None = None
    ) -> list[Seat]:
        """Every episode of the lease, by (group, number).

        Args:
            proofs: is given the states behind every turn.

        Raises:
            Unworkable: an episode ended before every agent had a turn.
            Cancelled: the engine was told to stop.
        """
        limits = EpisodeLimits.of_pool(pool, self._params.eos_token_ids)
        tasks = [
            environment.task("train", index, target)
            for index, target in zip(lease.task_indices, lease.target_lengths, strict=True)
        ]
        episodic = as_episodic(environment)
        seats = [
            Seat(group=group, number=number, episode=Episode(self._tokenizer, episodic, task, limits))
            for group, task in enumerate(tasks)
            for number in range(pool.group_size)
        ]
        draw_seed = bytes.fromhex(lease.draw_seed)
        play(self._engine, seats, self._params, draw_seed, sink=proofs)
        for seat in seats:
            if problem := seat.episode.unplayable:
                raise Unworkable(f"task {tasks[seat.group].task_id}: {problem}")
        return seats


def commitments_of(lease: Lease, pool: PoolSpec) -> Commitments | None:
    """For the rollouts of a lease; None in pools that ask for none."""
    return None if pool.proofs is None else Commitments(pool.proofs.scheme, bytes.fromhex(lease.draw_seed))


def _rollout(
    task: Task, request: GroupRequest, completion: Completion, lease: Lease, proofs: Commitments | None
) -> Rollout:
    return Rollout(
        env=task.env,
        task_id=task.task_id,
        group=completion.group,
        sample=completion.sample,
        prompt_tokens=request.prompt_tokens,
        completion_tokens=completion.tokens,
        logprobs=completion.logprobs,
        stop_reason=completion.stop_reason,
        policy_version=lease.policy_version,
        target_length=task.target_length,
        proof=b"" if proofs is None else proofs.proof(completion.group, completion.sample),
    )


def rollouts_of(seat: Seat, lease: Lease, proofs: Commitments | None = None) -> list[Rollout]:
    """One per agent of an episode that is over.

    Args:
        proofs: what was given the states behind its turns; None where no proof is asked for.
    """
    episode = seat.episode
    return [
        Rollout(
            env=episode.task.env,
            task_id=episode.task.task_id,
            group=seat.group,
            sample=seat.sample_of(agent),
            prompt_tokens=view.prompt_tokens,
            completion_tokens=view.completion_tokens,
            logprobs=seat.logprobs(agent),
            stop_reason=StopReason.EOS if episode.ends_in_eos(agent) else StopReason.LENGTH,
            policy_version=lease.policy_version,
            target_length=episode.task.target_length,
            proof=b"" if proofs is None else proofs.proof(seat.group, seat.sample_of(agent)),
        )
        for agent, view in enumerate(episode.views)
    ]
