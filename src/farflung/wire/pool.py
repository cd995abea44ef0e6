"""The rules of a pool, one record whose digest stands in every lease, submission and verdict."""

from typing import ClassVar, Literal

from farflung.wire.canonical import Record

EnvArg = str | int | float | bool


class EnvironmentSpec(Record, frozen=True, kw_only=True):
    """Which tasks are sampled and graded.

    `num_tasks` is the size of the training split; the keyed permutation of `slots` runs over it.
    """

    name: str
    args: dict[str, EnvArg] = {}
    seed: int = 0
    num_tasks: int
    target_lengths: tuple[int, ...] = ()
    """Thinking budgets that leases may ask for, tokens or steps as the environment defines; empty = none."""


class PoolSpec(Record, frozen=True, kw_only=True):
    """Everything that a worker, validator and trainer must agree on."""

    DOMAIN: ClassVar[str] = "farflung/pool-spec/1"

    name: str
    trust: Literal["open"] = "open"
    environment: EnvironmentSpec
    tokenizer_digest: str
    model_config_digest: str
    group_size: int
    """G, rollouts per task."""
    groups_per_slot: int
    """Tasks in one slot; one lease is worth `groups_per_slot * group_size` rollouts."""
    groups_per_batch: int
    """Groups that the trainer takes for one policy version, signal or not."""
    max_staleness: int
    """Versions; a rollout is trained on only while trainer version - its version <= this. 0 = synchronous."""
    max_outstanding_groups: int
    """Groups leased, queued or being trained on at once; bounds the queue and therefore the staleness."""
    temperature: float
    max_prompt_tokens: int
    max_completion_tokens: int
    lease_s: float
    """Seconds from lease to expiry."""
    max_attempts: int
    """Leases of one slot before it ends."""
    max_file_bytes: int
    """Largest rollout file that is accepted."""
