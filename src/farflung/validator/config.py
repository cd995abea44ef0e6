"""Settings of the role that checks."""

from pydantic import Field

from farflung.config.base import Config


class ValidatorConfig(Config):
    """What a validator is called, how long its judging may take, and how patient it is."""

    node: str = Field("", description="Name of this validator in the pool; empty = host name and process id.")
    device: str = Field(
        "cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="Where proofs are computed again: cpu, cuda or cuda:N."
    )
    num_threads: int = Field(1, ge=1, description="Torch threads for that.")
    key_file: str = Field(
        "",
        description="File with this validator's key, made if absent: who it is in pools that are not open; empty = a "
        "new key for each start.",
    )
    trainer: str = Field(
        "",
        pattern=r"^(0x[0-9a-fA-F]{40})?$",
        description="Address of the trainer's key; empty = whoever signed the first version that came.",
    )
    max_assignments: int = Field(4, ge=1, description="Submissions taken at once.")
    step_s: float = Field(
        10.0,
        gt=0,
        le=3600,
        description="Longest time to grade one completion, to build the tasks of a slot, or to read a file.",
    )
    max_judging_bytes: int = Field(
        8 << 30, ge=256 << 20, description="Memory that grading and reading may take, as address space."
    )
    heartbeat_s: float = Field(2.0, gt=0, description="Seconds between signs of life.")
    poll_s: float = Field(10.0, gt=0, description="How long one request for work may wait at the coordinator.")
    unreachable_s: float = Field(120.0, gt=0, description="Give up when the coordinator is away for longer.")
