"""`farflung run` and `farflung demo`: all roles of a configuration on this machine, watched until the end."""

import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from farflung.api.tokens import TOKEN_ROLES, make_tokens
from farflung.cli import ports
from farflung.cli.boundary import EXIT_BUG, EXIT_USER_ERROR
from farflung.cli.config import FREE_TO_CHANGE, RunConfig, coordinator_url
from farflung.cli.disk import want_of_space
from farflung.cli.pool_rules import build_pool
from farflung.cli.run_folder import FolderLock, RunFolder, differences, refuse_differences
from farflung.config.load import Loaded, load
from farflung.config.render import digest, render, to_toml
from farflung.errors import UserError
from farflung.supervisor.config import Setting
from farflung.supervisor.process import RoleSpec
from farflung.supervisor.service import STOPPING, Outcome, StopRequest, Supervisor
from farflung.telemetry.logs import log_to_file
from farflung.telemetry.metrics import read_metrics
from farflung.wire.node import Role

if TYPE_CHECKING:
    from farflung.cli.report.summary import Summary

logger = logging.getLogger(__name__)

SUPERVISOR_LOG = "supervisor.log"


def folder_of(config: RunConfig) -> RunFolder:
    return RunFolder(root=config.run.dir / config.run.name)


def is_finished(folder: RunFolder, max_versions: int) -> bool:
    """Whether the folder holds a run that has made all its versions; the trainer tells its totals when it ends."""
    versions = [row.get("version", -1) for row in read_metrics(folder.metrics) if row["kind"] == "progress"]
    return max(versions, default=-1) >= max_versions


def dry_run(loaded: Loaded[RunConfig]) -> int:
    """Print what would run, after every check that needs no process."""
    build_pool(loaded.config)
    sys.stdout.write(render(loaded))
    return 0


def launch(loaded: Loaded[RunConfig]) -> int:
    """Start or continue the run of this configuration; returns the exit code.

    Raises:
        UserError: the configuration, the folder or the port will not do; nothing was started.
    """
    config = loaded.config
    folder = folder_of(config)
    build_pool(config)
    with FolderLock(folder):
        if folder.config.exists():
            before = load(RunConfig, folder.config).config
            refuse_differences(folder, differences(before, config, free=_free_to_change(config)))
            if is_finished(folder, config.trainer.max_versions):
                return _tell_finished(before, folder)
        if sentence := want_of_space(folder.root, config.supervisor.min_free_bytes):
            raise UserError(sentence)
        if not config.run.local:
            config = _with_port(config)
            make_tokens(folder.tokens)
        log_to_file("supervisor", folder.logs / SUPERVISOR_LOG)
        _write_config(folder, config)
        events: list[str] = []
        outcome = _supervise(config, folder, events)
        return _conclude(config, folder, outcome, events)


def _tell_finished(config: RunConfig, folder: RunFolder) -> int:
    """There is nothing to start: show what came of the run, and how to make it longer."""
    from farflung.cli.report.write import as_text

    sys.stdout.write(
        f"{folder.root} is finished at version {config.trainer.max_versions}; nothing was started\n\n"
        f"{as_text(_report(config, folder), folder, is_local=config.run.local)}\n\n"
        f"to go on: farflung run {folder.config} --trainer.max_versions {2 * config.trainer.max_versions}\n"
    )
    return 0


def _free_to_change(config: RunConfig) -> tuple[str, ...]:
    """With `trainer.accept_changes` the trainer is asked, which says in the run's metrics what has changed."""
    return (*FREE_TO_CHANGE, "trainer.") if config.trainer.accept_changes else FREE_TO_CHANGE


def role_specs(config: RunConfig, folder: RunFolder) -> list[RoleSpec]:
    """How each process of the run is started, in that order."""
    relays: dict[str, Setting] = {"private_relays": True} if config.supervisor.num_relays else {}
    consent: dict[str, Setting] = {"accept_changes": True} if config.trainer.accept_changes else {}
    if config.run.local:
        return [_spec(config, folder, Role.TRAINER, "trainer", consent)]
    supervisor = config.supervisor
    worker_settings = [*supervisor.worker_overrides, *[{}] * supervisor.num_workers][: supervisor.num_workers]
    roles: list[tuple[Role, str, dict[str, Setting]]] = [
        (Role.COORDINATOR, "coordinator", relays),
        (Role.TRAINER, "trainer", consent),
        *((Role.RELAY, f"relay-{number}", {}) for number in range(1, supervisor.num_relays + 1)),
        *((Role.WORKER, f"worker-{number}", settings) for number, settings in enumerate(worker_settings, 1)),
        *((Role.VALIDATOR, f"validator-{number}", {}) for number in range(1, supervisor.num_validators + 1)),
    ]
    return [_spec(config, folder, role, name, settings) for role, name, settings in roles]


def _spec(config: RunConfig, folder: RunFolder, role: Role, name: str, settings: dict[str, Setting]) -> RoleSpec:
    url = coordinator_url(config)
    where = () if role is Role.COORDINATOR or config.run.local else ("--coordinator", url)
    named: dict[str, Setting] = {"node": name, **settings} if role in (Role.WORKER, Role.VALIDATOR) else settings
    if role is Role.RELAY:  # several on one machine: each takes any port, and says so to the coordinator
        key_file = str(folder.keys / name)
        named = {"node": name, "port": 0, "folder": str(folder.root / name), "key_file": key_file, **settings}
    needs_token = role in TOKEN_ROLES and not config.run.local
    token = ("--token-file", str(folder.tokens / role.value)) if needs_token else ()
    changes = [f"--{role.value}.{key}={_as_text(value)}" for key, value in named.items()]
    recorded = () if role in (Role.COORDINATOR, Role.RELAY) else ("--activity", str(folder.activity / f"{name}.jsonl"))
    log_path = folder.logs / f"{name}.log"
    # -P: a file in the current folder must not stand in for a module.
    python = (sys.executable, "-P", "-m", "farflung.cli.main")
    return RoleSpec(
        name=name,
        role=role,
        command=(*python, role.value, str(folder.config), *where, *token, *recorded, "--log", str(log_path), *changes),
        log_path=log_path,
    )


def _as_text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_port(config: RunConfig) -> RunConfig:
    port = ports.usable_port(config.coordinator.host, config.coordinator.port)
    return config.model_copy(update={"coordinator": config.coordinator.model_copy(update={"port": port})})


def _lasting(config: RunConfig) -> RunConfig:
    """What the run is from now on: consent to changes is for one start, and goes to the trainer by its command."""
    return config.model_copy(update={"trainer": config.trainer.model_copy(update={"accept_changes": False})})


def _write_config(folder: RunFolder, config: RunConfig) -> None:
    unfinished = folder.config.with_suffix(".tmp")
    unfinished.write_text(to_toml(_lasting(config)), encoding="utf-8")
    unfinished.replace(folder.config)


def _own(config: RunConfig, specs: list[RoleSpec]) -> frozenset[str]:
    """Names of the processes on this machine, as they call themselves."""
    samplers = {f"sampler-{number}" for number in range(1, config.supervisor.num_samplers + 1)}
    return frozenset(spec.name for spec in specs) | (samplers if config.run.local else frozenset())


def _supervise(config: RunConfig, folder: RunFolder, events: list[str]) -> Outcome:
    """Runs the roles until the end; what went wrong on the way is appended to `events`."""
    from farflung.cli.trackers import Trackers
    from farflung.cli.watching import watching  # rich and aiohttp take a moment to import

    stop = StopRequest()
    specs = role_specs(config, folder)

    with watching(config, folder, _own(config, specs)) as watch, _stop_on_signals(stop):

        def note(text: str) -> None:
            logger.warning("%s", text)
            watch.note(text)
            if not text.startswith(STOPPING):
                events.append(text)

        supervisor = Supervisor(
            specs,
            config.supervisor.restart_policy(),
            stop_grace_s=config.supervisor.stop_grace_s,
            report=note,
            trouble=lambda: want_of_space(folder.root, config.supervisor.min_free_bytes),
        )
        with Trackers(config.telemetry.sinks, folder, close_s=config.telemetry.close_s, report=note):
            outcome = supervisor.run(stop, before_last=watch.look)
    logger.info("the run ends: %s %s", outcome.kind, outcome.sentence)
    return outcome


@contextmanager
def _stop_on_signals(stop: StopRequest) -> Iterator[None]:
    def ask(number: int, _frame: object) -> None:
        if stop.level == 0:
            logger.info("asked to stop by %s", signal.Signals(number).name)
        stop.ask()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _conclude(config: RunConfig, folder: RunFolder, outcome: Outcome, events: Sequence[str]) -> int:
    """Reports, a few lines for the person, and the exit code."""
    from farflung.cli.report.write import as_text
    from farflung.cli.trackers import delivered

    if outcome.kind == "user_error":
        sys.stderr.write(f"farflung: {outcome.sentence}\n")
        return EXIT_USER_ERROR
    summary = _report(config, folder)
    if outcome.kind == "gave_up":
        log = folder.logs / f"{outcome.culprit}.log"
        sys.stderr.write(f"farflung: {outcome.sentence}; it crashed again and again, its log is {log}\n")
        return EXIT_BUG
    sys.stdout.write(f"\n{as_text(summary, folder, events, is_local=config.run.local)}\n")
    sys.stdout.writelines(f"  {delivered(folder, name)}\n" for name in config.telemetry.sinks)
    if outcome.kind == "stopped":
        sys.stdout.write(f"\nstopped; continue with: farflung run {folder.config}\n")
    return 0


def _report(config: RunConfig, folder: RunFolder) -> "Summary":
    from farflung.cli.report.write import write_report

    title = f"{config.run.name}: {config.environment.name}, seed {config.run.seed}"
    return write_report(folder, title=title, seed=config.run.seed, config_digest=digest(_lasting(config)))
