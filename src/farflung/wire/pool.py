"""The rules of a pool, one record whose digest stands in every lease, submission and verdict."""

from typing import ClassVar, Literal

from farflung.wire.canonical import MAX_EXACT_JSON_INT, Record
from farflung.wire.check_rules import CheckRules
from farflung.wire.invariants import (
    require_addresses,
    require_counts,
    require_digests,
    require_finite,
    require_names,
)
from farflung.wire.proof import ProofRules

EnvArg = str | int | float | bool
Trust = Literal["open", "proven"]
"""open: a worker is what it says it is. proven: a node is its key and signs all it does, and what it hands in carries
proofs."""
MAX_CLASSES = 64
MAX_STRATA = 64
MAX_TOTAL_WEIGHT = 10_000
"""Sum of the weights of all strata: the length of the order in which they take turns."""


class Stratum(Record, frozen=True, kw_only=True):
    """A part of an environment's training tasks with a share of the work of its own (`slots.strata`)."""

    name: str
    num_tasks: int
    weight: int
    """Its share is this over the sum of all weights."""

    def __post_init__(self) -> None:
        require_names(name=self.name)
        require_counts(at_least=1, num_tasks=self.num_tasks, weight=self.weight)


def require_strata(strata: tuple[Stratum, ...], num_tasks: int) -> None:
    """None, or few enough that together have every task."""
    if not strata:
        return
    total = sum(stratum.weight for stratum in strata)
    if len(strata) > MAX_STRATA or total > MAX_TOTAL_WEIGHT:
        raise ValueError(
            f"{len(strata)} strata with a total weight of {total}: at most {MAX_STRATA} and {MAX_TOTAL_WEIGHT}"
        )
    held = sum(stratum.num_tasks for stratum in strata)
    if held != num_tasks:
        raise ValueError(f"the strata have {held} tasks, the environment {num_tasks}: they must have all of them")


def require_classes(classes: dict[str, tuple[int, ...]], offered: tuple[int, ...]) -> None:
    """Each has some of the offered budgets, rising, so that equal rules are equal bytes."""
    if len(classes) > MAX_CLASSES:
        raise ValueError(f"{len(classes)} capability classes: at most {MAX_CLASSES}")
    for name, targets in classes.items():
        require_names(capability_class=name)
        if not targets or list(targets) != sorted(set(targets)) or not set(targets) <= set(offered):
            raise ValueError(
                f"capability class {name} has the target lengths {targets[:16]}: it needs at least one of "
                f"{offered[:16]}, each once and rising"
            )


def require_exact_integers(args: dict[str, EnvArg]) -> None:
    for name, value in args.items():
        if isinstance(value, int) and abs(value) > MAX_EXACT_JSON_INT:
            raise ValueError(f"argument {name} is {value}: write integers from 2**53 on as text")


class GraderSpec(Record, frozen=True, kw_only=True):
    """A named grader with its version and arguments: all that a verdict depends on beside reference and completion.

    Another rule, or another default of an argument, is another version.
    """

    DOMAIN: ClassVar[str] = "farflung/grader/1"

    name: str
    version: int
    args: dict[str, EnvArg] = {}

    @property
    def label(self) -> str:
        """`math@1`."""
        return f"{self.name}@{self.version}"

    def __post_init__(self) -> None:
        require_names(name=self.name)
        require_counts(at_least=1, version=self.version)
        require_exact_integers(self.args)


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
    strata: tuple[Stratum, ...] = ()
    """Parts with shares of their own, whose tasks are interleaved (`slots.strata`); empty = one part."""
    graders: tuple[GraderSpec, ...] = ()
    """What verdicts come from; empty = the environment's own code, of the version that is installed."""
    num_agents: int = 1
    """Rollouts that one attempt at a task gives: one per agent of the episode."""
    package: str = ""
    """Digest of the package that it is from (`wire.package`); empty = built in, or what each operator installed."""
    sources: dict[str, str] = {}
    """Environment or library -> what it is here, for all that is not built in: `package <digest>`, or distribution and
    version. So members of a mixture and libraries that make tasks are pinned, too (`envs.sources`)."""

    def __post_init__(self) -> None:
        require_names(name=self.name)
        if self.package:
            require_digests(package=self.package)
        require_counts(at_least=1, num_tasks=self.num_tasks, num_agents=self.num_agents)
        require_counts(target_lengths=min(self.target_lengths, default=0))
        require_strata(self.strata, self.num_tasks)
        require_exact_integers(self.args)
        for name, source in self.sources.items():
            require_names(source_name=name, source=source)
        if len(self.sources) > 2 * MAX_STRATA:
            raise ValueError(f"{len(self.sources)} sources: at most {2 * MAX_STRATA}")
        if len(self.graders) > MAX_STRATA:
            raise ValueError(f"{len(self.graders)} graders: at most {MAX_STRATA}")


class PoolSpec(Record, frozen=True, kw_only=True):
    """Everything that a worker, validator and trainer must agree on."""

    DOMAIN: ClassVar[str] = "farflung/pool-spec/1"

    name: str
    trust: Trust = "open"
    coordinator: str = ""
    """Address of the key that signs leases and receipts; needed unless the pool is open."""
    trainer: str = ""
    """Address of the key that signs versions and batch records; needed unless the pool is open."""
    environment: EnvironmentSpec
    tokenizer_digest: str
    model_config_digest: str
    group_size: int
    """G, attempts at each task: that many rollouts of each agent."""
    groups_per_slot: int
    """Tasks in one slot."""
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
    max_abs_reward: float = 1000.0
    """Largest size of a reward or a part of one; a larger one is a fault of the environment and counts as no grade."""
    proofs: ProofRules | None = None
    """What submissions are to carry; None in open pools alone."""
    checks: CheckRules = CheckRules()
    capability_classes: dict[str, tuple[int, ...]] = {}
    """Class -> thinking budgets that leases for it may ask for, some of `environment.target_lengths`."""
    deterministic_seed: int | None = None
    """What all draws follow from in deterministic mode (`slots.deterministic`); None = the normal mode."""

    @property
    def is_deterministic(self) -> bool:
        return self.deterministic_seed is not None

    @property
    def are_draws_final(self) -> bool:
        """Whether a node that lost a slot never gets it again: another attempt would have other draws."""
        return self.trust != "open" and not self.is_deterministic

    def target_lengths_of(self, capability_class: str) -> tuple[int, ...]:
        """What a machine of a class may be asked for; classes that the rules do not name may be asked for all."""
        return self.capability_classes.get(capability_class, self.environment.target_lengths)

    @property
    def rollouts_per_group(self) -> int:
        """Of one task. Sample `s` is agent `s % num_agents` of episode `s // num_agents`."""
        return self.group_size * self.environment.num_agents

    @property
    def rollouts_per_slot(self) -> int:
        """What one lease is worth."""
        return self.groups_per_slot * self.rollouts_per_group

    def __post_init__(self) -> None:
        require_names(name=self.name)
        if self.trust != "open" and not (self.coordinator and self.trainer):
            raise ValueError(f"a {self.trust} pool names the keys of its coordinator and trainer")
        if (self.proofs is None) != (self.trust == "open"):
            raise ValueError(f"a {self.trust} pool {'has no' if self.trust == 'open' else 'needs'} rules of proofs")
        for role, address in (("coordinator", self.coordinator), ("trainer", self.trainer)):
            if address:
                require_addresses(**{role: address})
        require_digests(tokenizer_digest=self.tokenizer_digest, model_config_digest=self.model_config_digest)
        require_classes(self.capability_classes, self.environment.target_lengths)
        if self.capability_classes and self.is_deterministic:
            raise ValueError("a deterministic pool has no capability classes: its leases do not depend on who asks")
        if self.is_deterministic and self.checks.validators_per_submission > 1:
            raise ValueError("a deterministic pool has one validator for each submission")
        require_counts(max_staleness=self.max_staleness, deterministic_seed=self.deterministic_seed or 0)
        require_counts(
            at_least=1,
            group_size=self.group_size,
            groups_per_slot=self.groups_per_slot,
            groups_per_batch=self.groups_per_batch,
            max_outstanding_groups=self.max_outstanding_groups,
            max_prompt_tokens=self.max_prompt_tokens,
            max_completion_tokens=self.max_completion_tokens,
            max_attempts=self.max_attempts,
            max_file_bytes=self.max_file_bytes,
        )
        positive = {name: getattr(self, name) for name in ("temperature", "lease_s", "max_abs_reward")}
        require_finite("temperature, lease_s and max_abs_reward", positive.values())
        if min(positive.values()) <= 0:
            raise ValueError(f"{positive}: each must be above 0")
