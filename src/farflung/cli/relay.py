"""`farflung relay --upstream URL,...`: pass versions on, until Ctrl-C."""

import asyncio
import sys
from argparse import Namespace

from farflung.cli import ports
from farflung.cli.roles import until_stopped
from farflung.config.base import Config
from farflung.config.load import load
from farflung.errors import UserError
from farflung.relay.config import RelayConfig
from farflung.telemetry.logs import log_to_stderr


class RelaySettings(Config):
    """What `--relay.key` sets."""

    relay: RelayConfig = RelayConfig()


def run_relay(arguments: Namespace, settings: list[str]) -> int:
    """Relay; returns 130 when asked to stop."""
    from farflung.relay import service

    upstream = tuple(url for url in arguments.upstream.split(",") if url)
    for url in upstream:
        if not ports.is_url(url):
            raise UserError(
                f"--upstream has {url!r}: it must be URLs such as http://10.0.0.7:7400, with commas between"
            )
    config = load(RelaySettings, None, settings).config.relay.model_copy(update={"upstream": upstream})
    log_to_stderr("relay")
    return asyncio.run(until_stopped(lambda stop: service.run(config, stop=stop, on_listening=_tell)))


def _tell(url: str) -> None:
    sys.stdout.write(f"relaying on {url}\n")
    sys.stdout.flush()
