"""Settings of the coordinator, and the pool's rules as a person writes them."""

from pydantic import Field, model_validator

from farflung.config.base import Config
from farflung.errors import UserError
from farflung.slots.economics import least_rate
from farflung.wire.check_rules import CheckRules
from farflung.wire.limits import MAX_ROLLOUTS_PER_FILE
from farflung.wire.panel import MAX_PANEL
from farflung.wire.pool import EnvironmentSpec, PoolSpec, Trust
from farflung.wire.proof import DEFAULT_RULES, ProofRules

BYTES_PER_TOKEN = 8
"""A completion token in a rollout file: its id and its logprob, four bytes each, not compressed."""
BYTES_PER_ROLLOUT = 1024
"""Allowance for the other columns of a row."""


class PoolConfig(Config):
    """The rules that all roles share; they cannot change during a run."""

    name: str = Field("pool", min_length=1, max_length=64, description="What the pool is called.")
    trust: Trust = Field(
        "open",
        description="open: workers are who they say they are. proven: each is its key, signs what it says, and proves "
        "what it sampled.",
    )
    group_size: int = Field(8, ge=2, description="Rollouts per task; an advantage needs two to compare.")
    groups_per_slot: int = Field(4, ge=1, description="Tasks that one lease is for.")
    groups_per_batch: int = Field(32, ge=1, description="Tasks that one policy version is trained on.")
    max_staleness: int = Field(4, ge=0, le=64, description="Versions that a rollout may be behind; 0 = synchronous.")
    max_outstanding_groups: int | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="Tasks leased or queued at once; unset = (max_staleness + 1) * groups_per_batch.",
    )
    temperature: float = Field(1.0, gt=0, le=5, description="Sampling temperature; training needs draws, so not 0.")
    max_prompt_tokens: int = Field(256, ge=1, description="Longest prompt, tokens.")
    max_completion_tokens: int = Field(256, ge=1, description="Longest completion, tokens.")
    lease_s: float = Field(120.0, gt=0, le=604_800, description="Seconds that a worker has for one slot.")
    max_attempts: int = Field(3, ge=1, le=1000, description="Leases of one slot before it ends.")
    max_file_bytes: int = Field(64 << 20, ge=4096, le=2**40, description="Largest rollout file that is accepted.")
    max_abs_reward: float = Field(
        1000.0, gt=0, le=1e6, description="Largest size of a reward; a larger one counts as not graded."
    )
    capability_classes: dict[str, tuple[int, ...]] = Field(
        {},
        description="Thinking budgets of slower machines: class -> some of the environment's, e.g. {slow = [512]}; "
        "other classes get all.",
    )
    proof_rules: str = Field(
        "", description="Thresholds of a proven pool: a file of `farflung calibrate`; empty = the shipped ones."
    )
    validators_per_submission: int = Field(
        1, ge=1, le=MAX_PANEL, description="Validators drawn for each submission; 1 = whoever asks first judges alone."
    )
    quorum: int | None = Field(
        None,
        ge=1,
        le=MAX_PANEL,
        description="How many of them have to agree; unset = the least that is more than half.",
    )
    audit_floor: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Least share of submissions of a proven pool that are sampled and graded again.",
    )
    audit_stake: float = Field(
        100.0,
        ge=0,
        description="What a caught node loses, in what cheating saves on one submission; gives the share above the "
        "floor.",
    )
    audit_first: int = Field(4, ge=0, description="Submissions of a new node that are all sampled and graded again.")
    forfeit_allowance: int = Field(
        8, ge=0, description="Leases that a node may give back or let expire beside forfeit_share of all that it had."
    )
    forfeit_share: float = Field(0.1, ge=0, le=1, description="Of its leases; one more is recorded as a fault.")
    deterministic: bool = Field(
        False,
        description="Every batch follows from run.seed alone, whoever works and whatever is killed; workers wait more. "
        "Rollouts are then exactly max_staleness versions behind.",
    )

    @model_validator(mode="after")
    def _batch_is_whole_slots(self) -> "PoolConfig":
        if self.groups_per_batch % self.groups_per_slot:
            raise ValueError(
                f"groups_per_batch is {self.groups_per_batch} with groups_per_slot {self.groups_per_slot}: "
                "a batch takes whole slots, so groups_per_batch must be a multiple of groups_per_slot"
            )
        return self

    @model_validator(mode="after")
    def _queue_holds_a_batch(self) -> "PoolConfig":
        outstanding = self.outstanding_groups
        if outstanding < self.groups_per_batch:
            raise ValueError(
                f"max_outstanding_groups is {outstanding} with groups_per_batch {self.groups_per_batch}: "
                "it must be at least groups_per_batch, or no batch ever fills; raise it or leave it out"
            )
        if self.max_staleness == 0 and outstanding > self.groups_per_batch:
            raise ValueError(
                f"max_outstanding_groups is {outstanding} with max_staleness 0: what is beyond one batch of "
                f"{self.groups_per_batch} groups would always be stale; leave it out or raise max_staleness"
            )
        return self

    @model_validator(mode="after")
    def _classes_need_leases_by_node(self) -> "PoolConfig":
        if self.deterministic and self.capability_classes:
            raise ValueError(
                "capability_classes are set and deterministic is true: there, leases do not depend on who asks; leave "
                "one of them out"
            )
        return self

    @model_validator(mode="after")
    def _quorum_is_a_majority(self) -> "PoolConfig":
        size = self.validators_per_submission
        if self.quorum is not None and not size < 2 * self.quorum <= 2 * size:
            raise ValueError(
                f"quorum is {self.quorum} with validators_per_submission {size}: it must be more than half of them; "
                "leave it out for the least that is"
            )
        if self.deterministic and size > 1:
            raise ValueError(
                f"validators_per_submission is {size} and deterministic is true: there, one validator judges; leave "
                "one of them out"
            )
        return self

    @property
    def check_rules(self) -> CheckRules:
        """With the rate of audits that follows from the stake (`slots.economics`); nothing is audited in open pools."""
        is_open, size = self.trust == "open", self.validators_per_submission
        return CheckRules(
            validators_per_submission=size,
            quorum=size // 2 + 1 if self.quorum is None else self.quorum,
            audit_rate=0.0 if is_open else max(self.audit_floor, least_rate(self.audit_stake)),
            audit_first=0 if is_open else self.audit_first,
            forfeit_allowance=self.forfeit_allowance,
            forfeit_share=self.forfeit_share,
        )

    @model_validator(mode="after")
    def _file_holds_a_slot(self) -> "PoolConfig":
        self._require_room(num_agents=1)
        return self

    def _require_room(self, num_agents: int) -> None:
        """Raises ValueError: one file cannot hold what a lease is for."""
        rollouts = self.groups_per_slot * self.group_size * num_agents
        if rollouts > MAX_ROLLOUTS_PER_FILE:
            raise ValueError(
                f"groups_per_slot * group_size is {rollouts}{' with all agents' if num_agents > 1 else ''}: one file "
                f"holds at most {MAX_ROLLOUTS_PER_FILE} rollouts; lower groups_per_slot"
            )
        row_bytes = 4 * self.max_prompt_tokens + BYTES_PER_TOKEN * self.max_completion_tokens + BYTES_PER_ROLLOUT
        if self.max_file_bytes < rollouts * row_bytes:
            raise ValueError(
                f"max_file_bytes is {self.max_file_bytes}: {rollouts} rollouts of the longest kind take about "
                f"{rollouts * row_bytes} bytes; raise max_file_bytes or lower groups_per_slot"
            )

    def _classes_of(self, environment: EnvironmentSpec) -> dict[str, tuple[int, ...]]:
        """Raises `UserError`: a class has a budget that the environment does not offer, or none."""
        offered = environment.target_lengths
        for name, targets in self.capability_classes.items():
            unknown = sorted(set(targets) - set(offered))
            if unknown or not targets:
                wrong = f"the target length {unknown[0]}" if unknown else "no target length"
                some = f"some of {', '.join(map(str, offered[:16]))}" if offered else "none: leave the classes out"
                raise UserError(
                    f"pool.capability_classes.{name} has {wrong}: environment {environment.name} offers {some}"
                )
        return {name: tuple(sorted(set(targets))) for name, targets in self.capability_classes.items()}

    @property
    def outstanding_groups(self) -> int:
        """`max_outstanding_groups` with its default filled in."""
        if self.max_outstanding_groups is None:
            return (self.max_staleness + 1) * self.groups_per_batch
        return self.max_outstanding_groups

    def build(
        self,
        *,
        environment: EnvironmentSpec,
        tokenizer_digest: str,
        model_config_digest: str,
        seed: int = 0,
        coordinator: str = "",
        trainer: str = "",
        proofs: ProofRules = DEFAULT_RULES,
    ) -> PoolSpec:
        """The record that these rules and the things that they are about make together.

        Args:
            seed: what draws follow from, in deterministic mode alone.
            coordinator: address of its key, as `trainer`.

        Raises:
            UserError: a file is too small for a slot of an environment with several agents.
        """
        try:
            self._require_room(environment.num_agents)
        except ValueError as error:
            raise UserError(f"pool: {error}") from error
        return PoolSpec(
            name=self.name,
            trust=self.trust,
            coordinator=coordinator,
            trainer=trainer,
            environment=environment,
            tokenizer_digest=tokenizer_digest,
            model_config_digest=model_config_digest,
            group_size=self.group_size,
            groups_per_slot=self.groups_per_slot,
            groups_per_batch=self.groups_per_batch,
            max_staleness=self.max_staleness,
            max_outstanding_groups=self.outstanding_groups,
            temperature=self.temperature,
            max_prompt_tokens=self.max_prompt_tokens,
            max_completion_tokens=self.max_completion_tokens,
            lease_s=self.lease_s,
            max_attempts=self.max_attempts,
            max_file_bytes=self.max_file_bytes,
            max_abs_reward=self.max_abs_reward,
            proofs=None if self.trust == "open" else proofs,
            checks=self.check_rules,
            capability_classes=self._classes_of(environment),
            deterministic_seed=seed if self.deterministic else None,
        )


class CoordinatorConfig(Config):
    """Where the coordinator listens, what it writes to, and how patient it is."""

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on; 0.0.0.0 = every interface.")
    port: int = Field(7400, ge=0, le=65535, description="TCP port; 0 = any free one.")
    store_url: str = Field("", description="Where chunks and rollout files go: a folder or s3://, gs://, az:// URL.")
    database_url: str = Field("", description="SQLAlchemy URL of the event log, e.g. sqlite:///runs/x/coordinator.db.")

    trainer: str = Field(
        "",
        pattern=r"^(0x[0-9a-fA-F]{40})?$",
        description="Address of the key that signs versions; empty = whoever signs the first, with the trainer token.",
    )
    silent_after_s: float = Field(
        20.0, gt=0, le=604_800, description="A node not heard of for this long is dead; its lease moves."
    )
    forget_after_s: float = Field(
        600.0, gt=0, le=604_800, description="A dead node disappears from the status after this."
    )
    judge_s: float = Field(
        60.0, gt=0, le=604_800, description="A validator has this long for an assignment; then another gets it."
    )
    ringer_rate: float = Field(
        0.005,
        ge=0,
        le=1,
        description="Share of planted files among what a validator of a proven pool gets; nobody is told it.",
    )
    max_judgings: int = Field(3, ge=1, description="Failed attempts to judge one submission before it is set aside.")
    sweep_s: float = Field(0.5, gt=0, description="Seconds between looks at what time has ended.")
    epoch_s: float = Field(
        3600.0,
        gt=0,
        le=604_800,
        description="An epoch lasts this long; then its secret is published, so that anyone can check its leases.",
    )
    keep_versions: int | None = Field(
        16,
        ge=1,
        description="Versions for which rollout files and evidence outlive their slots; none = keep all for ever.",
    )
    snapshot_every_events: int = Field(
        20_000, ge=10, description="Log entries after which the log is replaced by a snapshot of the state."
    )
    max_leases_per_address: int = Field(
        16, ge=1, description="Slots that one address may hold at once; this machine's own are not limited."
    )
    max_requests_per_s: float = Field(
        200.0, gt=0, le=1e6, description="Calls per second from one address, ten times as many at once."
    )
    max_connections: int = Field(4096, ge=16, le=65_536, description="Open connections; the longest idle make room.")
    max_connections_per_address: int = Field(
        256, ge=4, le=65_536, description="Of these from one address that is not this machine."
    )
    relays: tuple[str, ...] = Field(
        (), description="URLs of relays that workers are told of whether they register or not; names are allowed."
    )
    private_relays: bool = Field(
        False,
        description="Take relays that register from this machine or a private network; told to callers from there.",
    )
    relay_fan_out: int = Field(4, ge=1, le=256, description="Relays that fetch from the coordinator, or from a relay.")
    relay_slot_bytes_per_s: float = Field(
        2.5e6, gt=0, description="What a relay needs to be given to one below it; who can send less feeds no relay."
    )
    relays_per_node: int = Field(3, ge=1, le=16, description="Relays that one worker or validator is told of.")
    tls_certificate: str = Field("", description="PEM file of the certificate chain; empty = plain HTTP.")
    tls_key: str = Field("", description="PEM file of its private key.")
    max_bytes_in_flight: int = Field(
        256 << 20,
        ge=1 << 20,
        description="Bytes of uploads in memory at once, and of chunks on their way; a quarter for one address.",
    )

    @model_validator(mode="after")
    def _whole_tls(self) -> "CoordinatorConfig":
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("tls_certificate and tls_key go together: give both or none")
        return self

    @model_validator(mode="after")
    def _dead_before_forgotten(self) -> "CoordinatorConfig":
        if self.forget_after_s < self.silent_after_s:
            raise ValueError(
                f"forget_after_s is {self.forget_after_s:g} with silent_after_s {self.silent_after_s:g}: "
                "it must not be shorter"
            )
        return self
