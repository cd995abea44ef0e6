"""The configuration of a whole run: one section per role, and the rules between sections."""

from pathlib import Path

from pydantic import Field, ValidationError, field_validator, model_validator

from farflung.cli import ports
from farflung.config import fields
from farflung.config.base import Config
from farflung.coordinator.config import CoordinatorConfig, PoolConfig
from farflung.relay.config import RelayConfig
from farflung.supervisor.config import Setting, SupervisorConfig
from farflung.telemetry.sinks.base import SinkName
from farflung.trainer.config import TrainerConfig
from farflung.trainer.lineage import FREE
from farflung.validator.config import ValidatorConfig
from farflung.wire.pool import EnvArg
from farflung.worker.config import WorkerConfig

FREE_TO_CHANGE = (
    "run.ca_file",
    "run.dir",
    "run.name",
    "coordinator.host",
    "coordinator.port",
    "coordinator.keep_versions",
    "coordinator.max_leases_per_address",
    "coordinator.max_requests_per_s",
    "coordinator.max_connections",
    "coordinator.max_bytes_in_flight",
    "coordinator.private_relays",
    "coordinator.tls_",
    "coordinator.relay",
    "relay.",
    "supervisor.",
    "telemetry.",
    *(f"trainer.{key}" for key in FREE),
    "validator.",
    "worker.",
)
"""Settings that a run may be continued with: they change how fast or how long, not what is learned."""


class RunSection(Config):
    """What the run is called and where it lies."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Folder of the run under dir.")
    dir: Path = Field(Path("runs"), description="Folder that holds the folders of runs.")
    seed: int = Field(0, ge=0, lt=2**31, description="Weights, tasks and demonstrations follow from it.")
    ca_file: str = Field(
        "",
        description="PEM file of the authorities that https servers are checked by; empty = the system's.",
    )
    local: bool = Field(
        False,
        description="One trusted machine: trainer and supervisor.num_samplers samplers, no coordinator, no validators.",
    )


class EnvironmentSection(Config):
    """Which tasks are sampled and graded."""

    name: str = Field(
        "sort-digits",
        min_length=1,
        description="sort-digits, mod-sum, long-addition, arithmetic, reverse-text, instructions, "
        "reasoning-gym:<data set>, mixture (several of them), or an installed one.",
    )
    args: dict[str, EnvArg] = Field({}, description="Arguments of the environment; of a mixture's member in a table.")
    seed: int | None = Field(None, ge=0, lt=2**31, description="Which tasks; none = run.seed.")

    @field_validator("args", mode="before")
    @classmethod
    def _tables_are_dotted_names(cls, args: object) -> object:
        """`[environment.args.easy]` with `weight = 2` is the argument easy.weight."""
        return fields.flatten(args) if isinstance(args, dict) else args


class TelemetrySection(Config):
    """Trackers that a run's figures are forwarded to; the run's own files are always written."""

    sinks: tuple[SinkName, ...] = Field(
        (), description="Any of tensorboard, wandb, trackio; each needs its package, and none can stop a run."
    )
    project: str = Field("farflung", min_length=1, max_length=128, description="Project of the tracker.")
    run_name: str | None = Field(
        None, min_length=1, max_length=128, description="Name of the run in the tracker; none = run.name."
    )
    offline: bool = Field(False, description="Weights & Biases writes local files, which `wandb sync` sends later.")
    close_s: float = Field(
        20.0, ge=0, le=3600, description="Seconds that a tracker has for the last rows when the run ends."
    )


class RunConfig(Config):
    """Everything that a run is made of."""

    run: RunSection = RunSection()
    environment: EnvironmentSection = EnvironmentSection()
    pool: PoolConfig = PoolConfig()
    coordinator: CoordinatorConfig = CoordinatorConfig()
    trainer: TrainerConfig = TrainerConfig()
    worker: WorkerConfig = WorkerConfig()
    validator: ValidatorConfig = ValidatorConfig()
    relay: RelayConfig = RelayConfig()
    supervisor: SupervisorConfig = SupervisorConfig()
    telemetry: TelemetrySection = TelemetrySection()

    @property
    def environment_seed(self) -> int:
        return self.run.seed if self.environment.seed is None else self.environment.seed

    @model_validator(mode="after")
    def _longest_sequence_fits_a_micro_batch(self) -> "RunConfig":
        longest_tokens = self.pool.max_prompt_tokens + self.pool.max_completion_tokens
        if self.trainer.micro_batch_tokens < longest_tokens:
            raise ValueError(
                f"trainer.micro_batch_tokens is {self.trainer.micro_batch_tokens} but the longest sequence has "
                f"pool.max_prompt_tokens + pool.max_completion_tokens = {longest_tokens} tokens: raise the first or "
                "lower one of the others"
            )
        return self

    @model_validator(mode="after")
    def _a_local_run_has_nobody_to_prove_to(self) -> "RunConfig":
        if self.run.local and self.pool.trust != "open":
            raise ValueError(
                f'pool.trust is "{self.pool.trust}" in a local run, which has no workers and no validators: leave it '
                "out, or run without --local"
            )
        return self

    @model_validator(mode="after")
    def _there_are_as_many_validators_as_are_drawn(self) -> "RunConfig":
        wanted, started = self.pool.validators_per_submission, self.supervisor.num_validators
        if self.run.local and wanted > 1:
            raise ValueError(
                f"pool.validators_per_submission is {wanted} in a local run, which has no validators: leave it out, or "
                "run without --local"
            )
        if 0 < started < wanted:
            raise ValueError(
                f"pool.validators_per_submission is {wanted} with supervisor.num_validators {started}: start as many, "
                "or 0 if all of them join from elsewhere"
            )
        return self

    @model_validator(mode="after")
    def _a_local_run_has_nothing_to_send(self) -> "RunConfig":
        if self.run.local and self.supervisor.num_relays:
            raise ValueError(
                f"supervisor.num_relays is {self.supervisor.num_relays} in a local run, whose samplers share the "
                "trainer's memory: set it to 0, or run without --local"
            )
        return self

    @model_validator(mode="after")
    def _batch_with_signal_can_be_sampled(self) -> "RunConfig":
        pool, trainer = self.pool, self.trainer
        if trainer.batch_counts == "all":
            return self
        most_batches = trainer.max_sampled_per_batch
        if pool.deterministic:
            raise ValueError(
                'trainer.batch_counts is "signal" with pool.deterministic, where a batch is a fixed number of slots: '
                'set trainer.batch_counts to "all" or pool.deterministic to false'
            )
        if most_batches is None:
            return self
        if self.run.local and most_batches > pool.max_staleness + 1:
            raise ValueError(
                f"trainer.max_sampled_per_batch is {most_batches} with pool.max_staleness "
                f"{pool.max_staleness}: a local run samples max_staleness + 1 batches ahead, so lower the first or "
                "raise the second"
            )
        most_groups = most_batches * pool.groups_per_batch
        if pool.outstanding_groups < most_groups:
            raise ValueError(
                f"a batch may take trainer.max_sampled_per_batch * pool.groups_per_batch = {most_groups} groups until "
                f"enough have signal, but only pool.max_outstanding_groups = {pool.outstanding_groups} are ever out: "
                f"lower trainer.max_sampled_per_batch, or raise pool.max_outstanding_groups (with pool.max_staleness, "
                "which must be above 0)"
            )
        return self

    @model_validator(mode="after")
    def _signs_of_life_are_frequent_enough(self) -> "RunConfig":
        silent_after_s = self.coordinator.silent_after_s
        for role, settings in (("trainer", self.trainer), ("worker", self.worker), ("validator", self.validator)):
            heartbeat_s = settings.heartbeat_s
            if 2 * heartbeat_s > silent_after_s:
                raise ValueError(
                    f"{role}.heartbeat_s is {heartbeat_s:g} but coordinator.silent_after_s is {silent_after_s:g}: a "
                    f"{role} that misses one sign of life would count as dead; keep {role}.heartbeat_s at or below "
                    f"{silent_after_s / 2:g}"
                )
        return self

    @model_validator(mode="after")
    def _worker_overrides_are_worker_settings(self) -> "RunConfig":
        overrides = self.supervisor.worker_overrides
        if len(overrides) > self.supervisor.num_workers:
            raise ValueError(
                f"supervisor.worker_overrides has {len(overrides)} entries but supervisor.num_workers is "
                f"{self.supervisor.num_workers}: raise num_workers or remove entries"
            )
        for number, settings in enumerate(overrides, 1):
            _check_worker(number, self.worker, settings)
        return self


def _check_worker(number: int, worker: WorkerConfig, settings: dict[str, Setting]) -> None:
    place = f"supervisor.worker_overrides, entry {number}"
    unknown = sorted(settings.keys() - WorkerConfig.model_fields.keys())
    if unknown:
        raise ValueError(f"{place}: unknown setting {unknown[0]}; known: {', '.join(WorkerConfig.model_fields)}")
    if "node" in settings:
        raise ValueError(f"{place}: node cannot be set here, the supervisor names its workers worker-1, worker-2, ...")
    try:
        WorkerConfig.model_validate({**worker.model_dump(), **settings}, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        message = first["msg"]
        raise ValueError(f"{place}: {name} is {first['input']!r}; {message[:1].lower()}{message[1:]}") from error


def coordinator_url(config: RunConfig) -> str:
    """How the other roles on this machine reach the coordinator of a configuration."""
    coordinator = config.coordinator
    return ports.coordinator_url(coordinator.host, coordinator.port, is_tls=bool(coordinator.tls_certificate))
