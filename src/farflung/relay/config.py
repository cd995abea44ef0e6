"""Settings of a relay."""

from pydantic import Field, model_validator

from farflung.config.base import Config


class RelayConfig(Config):
    """Where a relay fetches, listens and keeps chunks, and what it lets others use."""

    coordinator: str = Field(
        "", description="URL of a pool's coordinator: the relay registers there, and learns whom to fetch from."
    )
    public_url: str = Field(
        "", description="Where others reach this relay, http://203.0.113.7:7500; empty = host and port that it has."
    )
    key_file: str = Field(
        "",
        description="File with this relay's key, made if absent: who it is in pools that are not open; empty = a new "
        "key for each start.",
    )
    node: str = Field("", description="Name of this relay in an open pool; empty = host name and process id.")
    upload_bytes_per_s: int = Field(
        12_500_000, ge=0, description="What it can send in all: decides how many fetch from it."
    )
    heartbeat_s: float = Field(3.0, gt=0, le=3600, description="Seconds between signs of life at the coordinator.")
    unreachable_s: float = Field(
        120.0, gt=0, description="Give up at the start when no coordinator answers for longer."
    )
    upstream: tuple[str, ...] = Field(
        (), description="URLs to fetch from: coordinators and relays; the first one is the origin, asked last."
    )
    trainer: str = Field(
        "", description="Address of the trainer's key; empty = whoever signed the first manifest that came."
    )
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on; 0.0.0.0 = every interface.")
    port: int = Field(7500, ge=0, le=65535, description="TCP port; 0 = any free one.")
    folder: str = Field("relay", min_length=1, description="Where chunks are kept.")
    max_disk_bytes: int = Field(64 << 30, ge=1 << 20, description="Chunks of the oldest versions make room above it.")
    max_concurrent: int = Field(4, ge=1, le=256, description="Chunks fetched at once; each takes its size in memory.")
    poll_s: float = Field(10.0, gt=0, le=60, description="How long one request for a new version may wait upstream.")
    held_s: float = Field(
        20.0, gt=0, le=60, description="How long a request waits for a chunk that is still on its way to the relay."
    )
    max_connections: int = Field(4096, ge=16, le=65_536, description="Open connections; the longest idle make room.")
    max_connections_per_address: int = Field(
        64, ge=4, le=65_536, description="Of these from one address that is not this machine."
    )
    max_requests_per_s: float = Field(
        100.0, gt=0, le=1e6, description="Calls per second from one address, ten times as many at once."
    )
    tls_certificate: str = Field("", description="PEM file of the certificate chain; empty = plain HTTP.")
    tls_key: str = Field("", description="PEM file of its private key.")

    @model_validator(mode="after")
    def _whole_tls(self) -> "RelayConfig":
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("tls_certificate and tls_key go together: give both or none")
        return self
