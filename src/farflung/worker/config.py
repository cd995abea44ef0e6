"""Settings of the role that samples."""

from pydantic import Field

from farflung.config.base import Config


class WorkerConfig(Config):
    """What a worker is called, how fast it samples, and how patient it is."""

    node: str = Field("", description="Name of this machine in the pool; empty = host name and process id.")
    key_file: str = Field(
        "",
        description="File with this machine's key, made if absent: who it is in pools that are not open; empty = a new "
        "key for each start.",
    )
    trainer: str = Field(
        "",
        pattern=r"^(0x[0-9a-fA-F]{40})?$",
        description="Address of the trainer's key; empty = whoever signed the first version that came.",
    )
    cache_folder: str = Field(
        "",
        description="Folder where chunks of weights are kept, so that a worker that is killed while it fetches goes on "
        "with them; empty = in memory only.",
    )
    max_cache_bytes: int = Field(8 << 30, ge=1 << 20, description="Of it; the chunks used longest ago make room.")
    capability_class: str = Field(
        "any",
        min_length=1,
        max_length=64,
        description="Which thinking budgets it can take: a class of pool.capability_classes, any, or auto: measured.",
    )
    max_batch_rows: int = Field(256, ge=1, description="Rollouts sampled at once.")
    num_threads: int = Field(1, ge=1, description="Torch threads; several processes beat several threads on few cores.")
    device: str = Field(
        "cpu",
        pattern=r"^(cpu|cuda(:\d+)?)$",
        description="cpu, cuda or cuda:N. The samplers of a local run compute where the trainer does.",
    )
    speed: float = Field(
        1.0, gt=0, le=1, description="1 = full speed; 0.5 sleeps as long as it samples (a slow machine)."
    )
    heartbeat_s: float = Field(2.0, gt=0, description="Seconds between signs of life.")
    poll_s: float = Field(10.0, gt=0, description="How long one request for work may wait at the coordinator.")
    unreachable_s: float = Field(120.0, gt=0, description="Give up when the coordinator is away for longer.")
