"""One role in this process, until it is finished or asked to stop."""

import asyncio
import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from farflung.api.tls import client_context
from farflung.api.tokens import TOKEN_ROLES, VARIABLE, check_token, make_tokens, read_token
from farflung.cli import ports
from farflung.cli.boundary import EXIT_INTERRUPTED
from farflung.cli.config import RunConfig, coordinator_url
from farflung.cli.launch import folder_of
from farflung.cli.shipped import resolve_config
from farflung.config.load import load
from farflung.errors import UserError
from farflung.supervisor.leash import hold
from farflung.telemetry.activity import ActivityClock
from farflung.telemetry.intervals import IntervalLog
from farflung.telemetry.logs import log_to_file, log_to_stderr
from farflung.telemetry.loop_watch import loop_watch
from farflung.telemetry.metrics import MetricsLog

if TYPE_CHECKING:
    from farflung.trainer.marks import Marks

Service = Callable[[asyncio.Event], Awaitable[None]]
RoleService = Callable[[asyncio.Event, ActivityClock], Awaitable[None]]


def run_role(arguments: Namespace, settings: list[str]) -> int:
    """Returns 0 when the run is finished, 130 when the role was asked to stop."""
    role: str = arguments.command
    path = resolve_config(arguments.config) if arguments.config else None
    config = load(RunConfig, path, settings).config
    if config.run.local and role != "trainer":
        raise UserError(f"{path} is a local run (run.local), which has no {role}: use `farflung run {path}`")
    start_log(_name(role, config), arguments.log)
    if arguments.leash_fd is not None:
        hold(arguments.leash_fd)
    service = SERVICES[role](config, _url(arguments, config), _token(arguments, config))
    with _activity(role, config, arguments) as activity:
        return asyncio.run(until_stopped(lambda stop: service(stop, activity)))


@contextmanager
def _activity(role: str, config: RunConfig, arguments: Namespace) -> Iterator[ActivityClock]:
    """The role's account of its time; recorded as intervals where there is a run's folder to record it in."""
    path = Path(arguments.activity) if arguments.activity else None
    if path is None and role == "trainer":
        path = folder_of(config).activity / "trainer.jsonl"
    if path is None or role == "coordinator":
        yield ActivityClock(time.monotonic)
        return
    intervals = IntervalLog(MetricsLog(path), node=_name(role, config), role=role)
    try:
        yield ActivityClock(time.monotonic, on_end=intervals.add)
    finally:
        intervals.close()


async def until_stopped(service: Service) -> int:
    """The first signal asks the service to stop, the second one interrupts it."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask() -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask)
    with loop_watch():
        await service(stop)
    return EXIT_INTERRUPTED if stop.is_set() else 0


def start_log(name: str, log: str | None) -> None:
    """To a file, or else to the terminal. Raises `UserError` for a file that cannot be written."""
    if log is None:
        log_to_stderr(name)
        return
    try:
        log_to_file(name, Path(log))
    except OSError as error:
        raise UserError(f"--log {log}: {error.strerror or error}; name a file that can be written") from error


def _name(role: str, config: RunConfig) -> str:
    return {"worker": config.worker.node, "validator": config.validator.node}.get(role) or role


def _url(arguments: Namespace, config: RunConfig) -> str:
    """Where the coordinator is: as told, else as the configuration says."""
    if getattr(arguments, "coordinator", None):
        url: str = arguments.coordinator
        if not ports.is_url(url):
            raise UserError(f"--coordinator is {url!r}: it must be a URL such as http://10.0.0.7:7400")
        return url
    if arguments.command == "coordinator" or config.run.local:
        return ""
    if arguments.config is None:
        raise UserError(
            f"farflung {arguments.command} needs the coordinator's address: give --coordinator URL, such as "
            "http://10.0.0.7:7400, or a CONFIG that names its host and port"
        )
    if config.coordinator.port == 0:
        raise UserError(
            f"{arguments.config} lets the coordinator take any free port: give its address with --coordinator URL"
        )
    return coordinator_url(config)


def _token(arguments: Namespace, config: RunConfig) -> str | None:
    """What this role shows to the coordinator: as told, else from the environment, else from the run's folder."""
    if arguments.command not in TOKEN_ROLES or config.run.local:
        return None
    if arguments.token_file is not None:
        return read_token(Path(arguments.token_file))
    if VARIABLE in os.environ:
        return check_token(os.environ[VARIABLE].strip(), VARIABLE)
    path = folder_of(config).tokens / arguments.command
    return read_token(path) if arguments.config is not None and path.exists() else None


def _coordinator(config: RunConfig, _url: str, _token: str | None) -> RoleService:
    from farflung.cli.pool_rules import build_pool
    from farflung.coordinator import service
    from farflung.identity.keys import make_key

    folder = folder_of(config)
    coordinator = config.coordinator.model_copy(
        update={
            "store_url": config.coordinator.store_url or str(folder.store),
            "database_url": config.coordinator.database_url or f"sqlite:///{folder.database}",
        }
    )
    folder.root.mkdir(parents=True, exist_ok=True)
    tokens = make_tokens(folder.tokens)
    key = make_key(folder.keys / "coordinator")
    trainer = config.coordinator.trainer or make_key(folder.keys / "trainer").address
    pool = build_pool(config, coordinator=key.address, trainer=trainer)
    tls = client_context(config.run.ca_file)
    return lambda stop, _: service.run(
        coordinator, pool, key=key, tokens=tokens, stop=stop, tls=tls, on_listening=_tell_url
    )


def _tell_url(url: str) -> None:
    sys.stdout.write(f"listening on {url}\n")
    sys.stdout.flush()


def _trainer(config: RunConfig, url: str, token: str | None) -> RoleService:
    root = folder_of(config).root
    root.mkdir(parents=True, exist_ok=True)
    if config.run.local:
        return _local_trainer(config, root)
    from farflung.trainer import service

    told, tls = _marks(), client_context(config.run.ca_file)
    return lambda stop, activity: service.run(
        config.trainer,
        url=url,
        token=token,
        tls=tls,
        run_folder=root,
        seed=config.run.seed,
        stop=stop,
        marks=told,
        activity=activity,
    )


def _local_trainer(config: RunConfig, root: Path) -> RoleService:
    from farflung.local.crew import Crew, num_versions

    crew = Crew(  # first of all: they import torch while we do
        config.supervisor.num_samplers,
        num_threads=config.worker.num_threads,
        num_versions=num_versions(is_deterministic=config.pool.deterministic, max_staleness=config.pool.max_staleness),
    )
    from farflung.cli.pool_rules import build_pool
    from farflung.local import service

    pool, told = build_pool(config), _marks()
    return lambda stop, activity: service.run(
        config.trainer,
        config.worker,
        pool,
        crew=crew,
        run_folder=root,
        seed=config.run.seed,
        stop=stop,
        marks=told,
        activity=activity,
    )


def _marks() -> "Marks":
    from farflung.trainer import marks

    fatal = os.environ.get(marks.VARIABLE)
    return marks.kill_at(fatal) if fatal else marks.pass_by


def _worker(config: RunConfig, url: str, _token: str | None) -> RoleService:
    from farflung.worker import service

    tls = client_context(config.run.ca_file)
    return lambda stop, activity: service.run(config.worker, url=url, stop=stop, tls=tls, activity=activity)


def _validator(config: RunConfig, url: str, token: str | None) -> RoleService:
    from farflung.validator import service

    tls = client_context(config.run.ca_file)
    return lambda stop, activity: service.run(
        config.validator, url=url, token=token, stop=stop, tls=tls, activity=activity
    )


SERVICES: dict[str, Callable[[RunConfig, str, str | None], RoleService]] = {
    "coordinator": _coordinator,
    "trainer": _trainer,
    "worker": _worker,
    "validator": _validator,
}
"""Role -> its service. Each is imported when it is started: torch only where it is needed."""
