"""`farflung relay --coordinator URL`: pass versions on, until the run is over or Ctrl-C."""

import asyncio
import sys
from argparse import Namespace

from farflung.api.tls import client_context
from farflung.cli import ports
from farflung.cli.config import RunConfig
from farflung.cli.roles import start_log, until_stopped
from farflung.cli.shipped import resolve_config
from farflung.config.load import load
from farflung.errors import UserError
from farflung.relay.config import RelayConfig
from farflung.supervisor.leash import hold


def run_relay(arguments: Namespace, settings: list[str]) -> int:
    """Relay; returns 0 when the run of its pool is over, 130 when asked to stop."""
    from farflung.relay import service

    whole, config = _config(arguments, settings)
    tls = client_context(whole.run.ca_file)
    start_log(config.node or "relay", arguments.log)
    if arguments.leash_fd is not None:
        hold(arguments.leash_fd)
    return asyncio.run(until_stopped(lambda stop: service.run(config, stop=stop, tls=tls, on_listening=_tell)))


def _config(arguments: Namespace, settings: list[str]) -> tuple[RunConfig, RelayConfig]:
    """Options on top of settings on top of the file's section."""
    path = resolve_config(arguments.config) if arguments.config else None
    whole = load(RunConfig, path, settings).config
    config = whole.relay
    upstream = tuple(url for url in arguments.upstream.split(",") if url) or config.upstream
    coordinator = arguments.coordinator or config.coordinator
    for url in (*upstream, *([coordinator] if coordinator else [])):
        if not ports.is_url(url):
            raise UserError(f"{url!r} is no address to fetch from: it must look like http://10.0.0.7:7400")
    if coordinator and not config.public_url and config.host in ("0.0.0.0", "::"):  # noqa: S104 (nothing is bound here)
        raise UserError(
            f"others cannot reach {config.host}: say with --relay.public_url under which address they reach this "
            "relay, such as http://203.0.113.7:7500"
        )
    return whole, config.model_copy(update={"upstream": upstream, "coordinator": coordinator})


def _tell(url: str) -> None:
    sys.stdout.write(f"relaying on {url}\n")
    sys.stdout.flush()
