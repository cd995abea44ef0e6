"""`farflung serve MODEL`: the OpenAI API over a model folder, until Ctrl-C."""

import sys
from argparse import Namespace
from pathlib import Path

from farflung.cli.roles import until_stopped
from farflung.config.base import Config
from farflung.config.load import load
from farflung.serving.config import ServeConfig
from farflung.telemetry.logs import log_to_stderr


class ServeSettings(Config):
    """What `--serve.key` sets."""

    serve: ServeConfig = ServeConfig()


def run_serve(arguments: Namespace, settings: list[str]) -> int:
    """Serve; returns 130 when asked to stop."""
    import asyncio

    from farflung.serving import service

    config = load(ServeSettings, None, settings).config.serve
    adapter = Path(arguments.adapter) if arguments.adapter else None
    log_to_stderr("serve")
    return asyncio.run(
        until_stopped(
            lambda stop: service.run(Path(arguments.model), config, adapter=adapter, stop=stop, on_listening=_tell)
        )
    )


def _tell(url: str, name: str) -> None:
    sys.stdout.write(f"serving {name} on {url}\n")
    sys.stdout.flush()
