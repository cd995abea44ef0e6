"""Settings of the supervisor."""

from pydantic import Field

from farflung.config.base import Config
from farflung.supervisor.policy import RestartPolicy

Setting = str | int | float | bool


class SupervisorConfig(Config):
    """How many processes of each role run on this machine, and how patient their supervisor is."""

    num_workers: int = Field(2, ge=0, le=256, description="Worker processes here; 0 = all workers are elsewhere.")
    num_samplers: int = Field(1, ge=1, le=256, description="Sampler processes of a local run, in place of workers.")
    num_validators: int = Field(1, ge=0, le=64, description="Validator processes here; 0 = all are elsewhere.")
    num_relays: int = Field(
        0, ge=0, le=64, description="Relay processes here, between the coordinator and workers on this machine."
    )
    worker_overrides: tuple[dict[str, Setting], ...] = Field(
        (), description="Settings of [worker] that differ for worker 1, 2, ..., e.g. [{}, {speed = 0.5}]."
    )
    restart_first_delay_s: float = Field(0.5, ge=0, description="Pause before a crashed role starts again.")
    restart_max_delay_s: float = Field(30.0, ge=0, description="The pause doubles with each crash in a row up to this.")
    max_restarts: int = Field(8, ge=0, description="Crashes in a row after which a role is given up.")
    healthy_after_s: float = Field(60.0, gt=0, description="A role that lived this long has ended its row of crashes.")
    stop_grace_s: float = Field(15.0, ge=0, description="From the request to stop until a role is killed.")
    min_free_bytes: int = Field(
        32 << 20, ge=0, description="The run stops while this much of its disk is still free; 0 = never."
    )

    def restart_policy(self) -> RestartPolicy:
        return RestartPolicy(
            first_delay_s=self.restart_first_delay_s,
            max_delay_s=self.restart_max_delay_s,
            max_restarts=self.max_restarts,
            healthy_after_s=self.healthy_after_s,
        )
